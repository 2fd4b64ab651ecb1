package sandbox

import (
	"encoding/json"
	"testing"
	"time"
)

func TestEventsThatNobodyReadsAreCounted(t *testing.T) {
	queue := newEventQueue()
	event := json.RawMessage(`{"type": "file", "timestamp": 1700000000.25, "file": {"op": "write", "path": "/x", "size": 1}}`)
	for i := 0; i < waitingEvents+10; i++ {
		queue.put(event)
	}
	for i := 0; i < waitingEvents; i++ {
		if got, ok := (<-queue.channel).(*FileEvent); !ok || !got.Time().Equal(time.UnixMilli(1700000000250)) {
			t.Fatalf("%+v", got)
		}
	}
	queue.put(event)
	if lost, ok := (<-queue.channel).(*LifecycleEvent); !ok || lost.State != "events_lost" || lost.Count != 10 {
		t.Errorf("%+v", lost)
	}
	if _, ok := (<-queue.channel).(*FileEvent); !ok {
		t.Error("the event after it is missing")
	}
	queue.put(json.RawMessage(`{"type": "of the future", "timestamp": 1, "of the future": {}}`))
	queue.end()
	queue.end()
	queue.put(event)
	if event, ok := <-queue.channel; ok {
		t.Errorf("%+v", event)
	}
}

func TestManySmallPiecesCostLittleMoreThanTheirBytes(t *testing.T) {
	out := &output{grant: func(int) {}}
	for i := 0; i < window; i++ {
		out.put(i%2, []byte{byte(i)}) // a hostile command writes single bytes to both streams in turn
	}
	if pieces := len(out.streams[stdout]) + len(out.streams[stderr]); pieces > manyPieces {
		t.Errorf("%d pieces wait", pieces)
	}
	total := 0
	out.end(errTest, false)
	for {
		_, data, err := out.next(anyone)
		if err != nil {
			break
		}
		total += len(data)
	}
	if total != window {
		t.Errorf("%d bytes came out", total)
	}
}

type testError string

func (e testError) Error() string { return string(e) }

const errTest = testError("the end")
