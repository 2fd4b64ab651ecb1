package sandbox

import (
	"os"
	"sync"
)

const (
	// window is how many bytes of unread output one command or connection may have here.
	window = 512 << 10
	// Neighbouring pieces are joined up to this size; when many pieces wait, regardless of size and neighbours.
	joinedSize = 64 << 10
	manyPieces = 1024
)

// The streams of a command, as indexes.
const (
	stdout = iota
	stderr
)

var streamNames = [2]string{"stdout", "stderr"}

type piece struct {
	order uint64
	data  []byte
}

// taker says who takes a stream.
type taker int

const (
	anyone taker = iota // Wait or Chunks
	reader              // an io.Reader from Stdout or Stderr
	writer              // an io.Writer from WithStdout or WithStderr
)

// output holds what was received and nobody has read. The other side sends at most one window ahead of the reader:
// every byte that is taken here is granted to it again.
type output struct {
	grant func(bytes int) // must not block

	mu      sync.Mutex
	streams [2][]piece
	takers  [2]taker
	order   uint64
	owed    int           // bytes that were taken and not granted yet
	err     error         // why no more comes: io.EOF after a normal end
	changed chan struct{} // closed at the next change, if somebody waits for one
}

// put adds what was received. It does nothing after the end.
func (o *output) put(stream int, data []byte) {
	if len(data) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return
	}
	queue := o.streams[stream]
	last := len(queue) - 1
	many := len(o.streams[stdout])+len(o.streams[stderr]) >= manyPieces
	neighbour := last >= 0 && queue[last].order == o.order && len(queue[last].data)+len(data) <= joinedSize
	if last >= 0 && (many || neighbour) {
		queue[last].data = append(queue[last].data, data...)
	} else {
		o.order++
		o.streams[stream] = append(queue, piece{o.order, data})
	}
	o.wake()
}

// end says that nothing more comes. What is there can still be read, unless drop is set.
func (o *output) end(err error, drop bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if drop {
		o.streams = [2][]piece{}
	}
	if o.err == nil || drop {
		o.err = err
	}
	o.wake()
}

// claim leaves a stream to one taker.
func (o *output) claim(stream int, by taker) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.takers[stream] = by
	o.wake()
}

// next waits for the oldest piece of the streams that are left to by.
func (o *output) next(by taker) (int, []byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		from := -1
		for stream := range o.streams {
			waits := o.takers[stream] == by && len(o.streams[stream]) > 0
			if waits && (from < 0 || o.streams[stream][0].order < o.streams[from][0].order) {
				from = stream
			}
		}
		if from >= 0 {
			data := o.streams[from][0].data
			o.streams[from] = o.streams[from][1:]
			o.taken(len(data))
			return from, data, nil
		}
		if o.err != nil {
			return 0, nil, o.err
		}
		o.wait(nil)
	}
}

// read waits for bytes of one stream. It returns os.ErrDeadlineExceeded when expired is closed first.
func (o *output) read(stream int, buffer []byte, expired <-chan struct{}) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		select {
		case <-expired:
			return 0, os.ErrDeadlineExceeded
		default:
		}
		if queue := o.streams[stream]; len(queue) > 0 {
			n := copy(buffer, queue[0].data)
			if queue[0].data = queue[0].data[n:]; len(queue[0].data) == 0 {
				o.streams[stream] = queue[1:]
			}
			o.taken(n)
			return n, nil
		}
		if o.err != nil {
			return 0, o.err
		}
		if len(buffer) == 0 {
			return 0, nil
		}
		o.wait(expired)
	}
}

// wait returns at the next change, or when stop is closed. The lock is free meanwhile.
func (o *output) wait(stop <-chan struct{}) {
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	changed := o.changed
	o.mu.Unlock()
	select {
	case <-changed:
	case <-stop:
	}
	o.mu.Lock()
}

func (o *output) wake() {
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// taken grants in portions: one message for each read would cost more than the reading.
func (o *output) taken(bytes int) {
	o.owed += bytes
	if o.owed >= window/4 && o.err == nil {
		o.grant(o.owed)
		o.owed = 0
	}
}

// streamReader is one stream of an output as an io.Reader.
type streamReader struct {
	from   *output
	stream int
}

func (r streamReader) Read(buffer []byte) (int, error) { return r.from.read(r.stream, buffer, nil) }

// collector keeps the first bytes of a stream.
type collector struct {
	kept      []byte
	limit     int
	truncated bool
}

func (c *collector) add(data []byte) {
	if room := c.limit - len(c.kept); len(data) > room {
		c.truncated = true
		data = data[:room]
	}
	c.kept = append(c.kept, data...)
}
