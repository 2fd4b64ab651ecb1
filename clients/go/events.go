package sandbox

import (
	"encoding/json"
	"sync"
	"time"
)

// Event is one of *NetworkEvent, *FileEvent, *ExecEvent, *LifecycleEvent.
type Event interface{ Time() time.Time }

type stamp struct{ at int64 }

// Time is when it happened.
func (s stamp) Time() time.Time { return time.Unix(s.at, 0) }

// NetworkEvent is a connection or a request, allowed or not.
type NetworkEvent struct {
	stamp
	Method        string `json:"method"`
	URL           string `json:"url"`
	StatusCode    int    `json:"status_code"`
	RequestBytes  int64  `json:"request_bytes"`
	ResponseBytes int64  `json:"response_bytes"`
	DurationMS    int64  `json:"duration_ms"`
	Blocked       bool   `json:"blocked"`
	Rule          string `json:"rule"`
	Reason        string `json:"reason"`
}

// FileEvent is a change in a provided directory.
type FileEvent struct {
	stamp
	Op   string `json:"op"`
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// ExecEvent is a command that ended.
type ExecEvent struct {
	stamp
	Command    string `json:"command"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
}

// LifecycleEvent is a turn in the sandbox's own life.
type LifecycleEvent struct {
	stamp
	State string `json:"state"`
	ID    string `json:"id"`
}

func readEvent(raw json.RawMessage) Event {
	var got struct {
		Type      string          `json:"type"`
		Timestamp int64           `json:"timestamp"`
		Network   *NetworkEvent   `json:"network"`
		File      *FileEvent      `json:"file"`
		Exec      *ExecEvent      `json:"exec"`
		Lifecycle *LifecycleEvent `json:"lifecycle"`
	}
	if json.Unmarshal(raw, &got) != nil {
		return nil
	}
	at := stamp{got.Timestamp}
	switch {
	case got.Network != nil:
		got.Network.stamp = at
		return got.Network
	case got.File != nil:
		got.File.stamp = at
		return got.File
	case got.Exec != nil:
		got.Exec.stamp = at
		return got.Exec
	case got.Lifecycle != nil:
		got.Lifecycle.stamp = at
		return got.Lifecycle
	}
	return nil // a kind that this client does not know yet
}

const waitingEvents = 4096

type eventQueue struct {
	mu      sync.Mutex
	ended   bool
	channel chan Event
}

func newEventQueue() *eventQueue { return &eventQueue{channel: make(chan Event, waitingEvents)} }

func (q *eventQueue) put(raw json.RawMessage) {
	event := readEvent(raw)
	q.mu.Lock()
	defer q.mu.Unlock()
	if event == nil || q.ended {
		return
	}
	select {
	case q.channel <- event:
	default:
	}
}

func (q *eventQueue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.ended = true
		close(q.channel)
	}
}
