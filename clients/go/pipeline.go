package sandbox

import (
	"context"
	"encoding/json"

	"github.com/example/sandbox/internal/wire"
)

// pipeline sends requests without waiting for the answer to each: at most fileAhead of them are under way. The answers
// are taken in the order of the requests.
type pipeline struct {
	ctx      context.Context
	vm       *VM
	underWay []pipelined
}

type pipelined struct {
	request  *wire.Request
	answered chan pipelineAnswer
	take     func(json.RawMessage) error
}

type pipelineAnswer struct {
	result json.RawMessage
	err    error
}

func newPipeline(ctx context.Context, vm *VM) *pipeline { return &pipeline{ctx: ctx, vm: vm} }

// send sends a request when fewer than fileAhead are under way. take, unless it is nil, is called with the answer.
func (l *pipeline) send(method string, params interface{}, take func(json.RawMessage) error) error {
	if err := l.wait(fileAhead - 1); err != nil {
		return err
	}
	answered := make(chan pipelineAnswer, 1)
	request, err := l.vm.conn.Open(l.ctx, method, params, func(raw json.RawMessage, err error) bool {
		answered <- pipelineAnswer{raw, err}
		return true
	})
	if err != nil {
		return translated(err)
	}
	l.underWay = append(l.underWay, pipelined{request, answered, take})
	return nil
}

// wait takes answers until at most so many requests are under way.
func (l *pipeline) wait(most int) error {
	for len(l.underWay) > most {
		first := l.underWay[0]
		select {
		case got := <-first.answered:
			l.underWay = l.underWay[1:]
			if got.err != nil {
				return translated(got.err)
			}
			if first.take != nil {
				if err := first.take(got.result); err != nil {
					return err
				}
			}
		case <-l.ctx.Done():
			return l.ctx.Err()
		}
	}
	return nil
}

// close cancels what is still under way.
func (l *pipeline) close() {
	for _, one := range l.underWay {
		one.request.Cancel()
	}
}
