package wire

import (
	"context"
	"io"
	"sync"
)

const outboxLimit = 16 << 20

// outbox holds lines that are to be written. A goroutine of its own writes them, so that a context can end the wait of a
// sender while the other side does not read.
type outbox struct {
	mu     sync.Mutex
	lines  [][]byte
	size   int
	closed bool
	work   chan struct{} // has an element when lines is not empty or closed is set
	room   chan struct{} // closed, and replaced, when there is room again
}

func newOutbox() *outbox {
	return &outbox{work: make(chan struct{}, 1), room: make(chan struct{})}
}

// put queues a line as soon as there is room.
func (o *outbox) put(ctx context.Context, line []byte) error {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return ErrEnded
		}
		if o.size == 0 || o.size+len(line) <= outboxLimit {
			o.add(line)
			o.mu.Unlock()
			return nil
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// putNow queues a short line, whether there is room or not.
func (o *outbox) putNow(line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.add(line)
	}
}

// full reports whether far more is queued than put would: the other side does not read.
func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size > 4*outboxLimit
}

func (o *outbox) add(line []byte) {
	o.lines = append(o.lines, append(line, '\n'))
	o.size += len(line) + 1
	o.wake()
}

func (o *outbox) wake() {
	select {
	case o.work <- struct{}{}:
	default:
	}
}

// close makes put fail and ends drain when it has written what is queued.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.room)
		o.wake()
	}
}

// drain writes what is queued until the outbox is closed or writing fails.
func (o *outbox) drain(out io.Writer) {
	for range o.work {
		o.mu.Lock()
		lines, closed := o.lines, o.closed
		o.lines = nil
		o.mu.Unlock()
		for _, line := range lines {
			if _, err := out.Write(line); err != nil {
				o.close()
				return
			}
			o.written(len(line))
		}
		if closed {
			return
		}
	}
}

func (o *outbox) written(size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= size
	if !o.closed {
		close(o.room)
		o.room = make(chan struct{})
	}
}
