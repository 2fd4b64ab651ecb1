package sandbox

import (
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// Event is something that happened: a *NetworkEvent, *FileEvent, *ExecStartEvent, *ExecEvent, *LogEvent, *Ask or
// *LifecycleEvent.
type Event interface {
	Time() time.Time // when it happened
}

type stamp struct{ at time.Time }

// Time returns when it happened, to the microsecond.
func (s stamp) Time() time.Time { return s.at }

func (s *stamp) set(at time.Time) { s.at = at }

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

// FileEvent is a change to a file in a mount, or an access that was blocked.
type FileEvent struct {
	stamp
	Op      string `json:"op"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	Blocked bool   `json:"blocked"`
}

// ExecStartEvent is a command that started. Its ID is that of the ExecEvent of its end.
type ExecStartEvent struct {
	stamp
	ID      string `json:"id"`
	Command string `json:"command"`
	PID     int    `json:"pid"`
}

// ExecEvent is a command that ended.
type ExecEvent struct {
	stamp
	ID         string `json:"id"`
	Command    string `json:"command"`
	ExitCode   int    `json:"exit_code"`
	DurationMS int64  `json:"duration_ms"`
}

// LogEvent is a line that a policy script printed.
type LogEvent struct {
	stamp
	Source  string `json:"source"`
	Message string `json:"message"`
}

// Ask is a question to the sandbox's owner, and an event when it begins to wait and when it ends: may a command reach a
// host (Kind "host"), or open a blocked file ("file")? See docs/asks.md.
type Ask struct {
	stamp
	ID        int      `json:"id"`
	Sandbox   string   `json:"sandbox"`
	Kind      string   `json:"kind"`
	Host      string   `json:"host"`
	Port      int      `json:"port"`
	Method    string   `json:"method"`    // for HTTP
	Path      string   `json:"path"`      // of the request, or of the file
	Operation string   `json:"operation"` // what was tried with the file: "read", "write" or "list"
	Program   string   `json:"program"`   // who wants it, as far as that is known; programs choose their own names
	Exe       string   `json:"exe"`
	PID       int      `json:"pid"`
	Text      string   `json:"text"` // the question in English, safe to print
	Answers   []string `json:"answers"`
	Timeout   float64  `json:"timeout"` // seconds
	State     string   `json:"state"`   // "waiting", "allowed", "denied", "expired" or "withdrawn"
	Answer    string   `json:"answer"`
	By        string   `json:"by"`
}

// Answers to an Ask: for this one time, until the sandbox ends, also in the user's own configuration file, or not.
const (
	AllowOnce    = "once"
	AllowSandbox = "sandbox"
	AllowAlways  = "always"
	Deny         = "deny"
)

// LifecycleEvent is a change of the sandbox's own state: "ready" or "stopped". The state "events_lost" says that Count
// events are missing here because nobody read the channel in time.
type LifecycleEvent struct {
	stamp
	State string `json:"state"`
	ID    string `json:"id"`
	Count int    `json:"count"`
}

type stamped interface {
	Event
	set(time.Time)
}

var eventTypes = map[string]func() stamped{
	"network":    func() stamped { return &NetworkEvent{} },
	"file":       func() stamped { return &FileEvent{} },
	"exec_start": func() stamped { return &ExecStartEvent{} },
	"exec":       func() stamped { return &ExecEvent{} },
	"log":        func() stamped { return &LogEvent{} },
	"ask":        func() stamped { return &Ask{} },
	"lifecycle":  func() stamped { return &LifecycleEvent{} },
}

// readEvent returns nil for a type of event that this client does not know.
func readEvent(raw json.RawMessage) Event {
	var head struct {
		Type      string  `json:"type"`
		Timestamp float64 `json:"timestamp"`
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &head) != nil || json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	create, known := eventTypes[head.Type]
	if !known {
		return nil
	}
	event := create()
	if json.Unmarshal(fields[head.Type], event) != nil {
		return nil
	}
	event.set(secondsTime(head.Timestamp))
	return event
}

// commandText is a command as events and lists show it: a command line, or arguments joined by spaces.
func commandText(command interface{}) string {
	words, ok := command.([]interface{})
	if !ok {
		text, _ := command.(string)
		return text
	}
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i], _ = word.(string)
	}
	return strings.Join(texts, " ")
}

const waitingEvents = 4096

// eventQueue passes events on. It drops events rather than wait for whoever reads, and then says how many.
type eventQueue struct {
	mu      sync.Mutex
	ended   bool
	lost    int
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
	if q.lost > 0 {
		if cap(q.channel)-len(q.channel) < 2 {
			q.lost++
			return
		}
		q.channel <- &LifecycleEvent{stamp: stamp{event.Time()}, State: "events_lost", Count: q.lost}
		q.lost = 0
	}
	select {
	case q.channel <- event:
	default:
		q.lost++
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

// Events returns what happens in the sandbox, from its start or, after Attach, from then on. The channel is closed when
// the sandbox has ended or this client has left it. All callers share one channel, which holds 4096 events; when nobody
// reads, further events are lost.
func (vm *VM) Events() <-chan Event { return vm.events.channel }
