package sandbox

import (
	"context"
	"encoding/json"
	"net"
	"strconv"
	"time"
)

// ProcessInfo is a command that runs in the sandbox, whoever started it.
type ProcessInfo struct {
	PID     int       // inside the sandbox
	ID      string    // unique in the sandbox; events name it too
	Command string    // the command line, or the arguments joined by spaces
	Started time.Time // when it started
	Keep    string    // the name for Connect, if it has one
	TTY     bool      // whether it runs on a terminal
}

// UnmarshalJSON reads an entry of `processes`.
func (p *ProcessInfo) UnmarshalJSON(raw []byte) error {
	var got struct {
		PID     int         `json:"pid"`
		ID      string      `json:"id"`
		Command interface{} `json:"command"`
		Started float64     `json:"started"`
		Keep    string      `json:"keep"`
		TTY     bool        `json:"tty"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return err
	}
	*p = ProcessInfo{got.PID, got.ID, commandText(got.Command), secondsTime(got.Started), got.Keep, got.TTY}
	return nil
}

// Processes returns the commands that run now, from every client and from the owner.
func (vm *VM) Processes(ctx context.Context) ([]ProcessInfo, error) {
	var got struct {
		Processes []ProcessInfo `json:"processes"`
	}
	err := vm.call(ctx, "processes", nil, &got)
	return got.Processes, err
}

// Stats is what the sandbox uses. A field is zero when this machine cannot tell.
type Stats struct {
	MemoryBytes     int64         // used now
	MemoryPeakBytes int64         // most that was used at a time
	CPUTime         time.Duration // processor time of everything that ran
	Processes       int           // processes that run now
	LifetimeLeft    time.Duration // until the sandbox ends by itself; zero without a lifetime
}

// Stats returns what the sandbox uses.
func (vm *VM) Stats(ctx context.Context) (*Stats, error) {
	var got struct {
		MemoryBytes     int64   `json:"memory_bytes"`
		MemoryPeakBytes int64   `json:"memory_peak_bytes"`
		CPUMS           float64 `json:"cpu_ms"`
		Processes       int     `json:"processes"`
		LifetimeLeft    float64 `json:"lifetime_left"`
	}
	if err := vm.call(ctx, "stats", nil, &got); err != nil {
		return nil, err
	}
	return &Stats{
		MemoryBytes: got.MemoryBytes, MemoryPeakBytes: got.MemoryPeakBytes, Processes: got.Processes,
		CPUTime:      time.Duration(got.CPUMS * float64(time.Millisecond)),
		LifetimeLeft: time.Duration(got.LifetimeLeft * float64(time.Second)),
	}, nil
}

// NoLimit removes a limit in Lifetime and IdleTimeout.
const NoLimit time.Duration = -1

// TimeLimit is a limit that Extend sets.
type TimeLimit func(map[string]interface{})

// Lifetime ends the sandbox after this time, counted from the call of Extend.
func Lifetime(limit time.Duration) TimeLimit { return timeLimit("lifetime", limit) }

// IdleTimeout ends the sandbox when nothing has run in it for this time.
func IdleTimeout(limit time.Duration) TimeLimit { return timeLimit("idle_timeout", limit) }

func timeLimit(name string, limit time.Duration) TimeLimit {
	return func(params map[string]interface{}) {
		if limit == NoLimit {
			params[name] = nil
		} else {
			params[name] = limit.Seconds()
		}
	}
}

// Extend changes how long the sandbox lives. A limit that is not named stays as it is.
func (vm *VM) Extend(ctx context.Context, limits ...TimeLimit) error {
	params := map[string]interface{}{}
	for _, limit := range limits {
		limit(params)
	}
	return vm.call(ctx, "extend", params, nil)
}

// Port is a published port: connections to Address and Port on the host reach the port Inside.
type Port struct {
	Address string `json:"address"`
	Port    int    `json:"port"`
	Inside  int    `json:"inside"`
}

// HostPort returns Address and Port in the form that net.Dial takes.
func (p Port) HostPort() string { return net.JoinHostPort(p.Address, strconv.Itoa(p.Port)) }

// Ports returns the published ports, with the real number where NetworkConfig.Publish asked for port 0.
func (vm *VM) Ports(ctx context.Context) ([]Port, error) {
	var got struct {
		Ports []Port `json:"ports"`
	}
	err := vm.call(ctx, "ports", nil, &got)
	return got.Ports, err
}

// Asks returns the questions to the owner that wait for an answer (docs/asks.md). With watch, this program follows the
// events of type *Ask and answers from now on, so questions wait for it.
func (vm *VM) Asks(ctx context.Context, watch bool) ([]*Ask, error) {
	var told struct {
		Asks []*Ask `json:"asks"`
	}
	err := vm.call(ctx, "asks", map[string]bool{"watch": watch}, &told)
	return told.Asks, err
}

// Answer answers a question with AllowOnce, AllowSandbox, AllowAlways or Deny. It fails when the question was answered
// already, or its time is over.
func (vm *VM) Answer(ctx context.Context, id int, answer string) error {
	return vm.call(ctx, "answer", map[string]interface{}{"ask": id, "answer": answer}, nil)
}

// UpdateNetwork changes settings of the network section (docs/config.md), such as "allowed_hosts". New connections meet
// the new settings at once.
func (vm *VM) UpdateNetwork(ctx context.Context, changes map[string]interface{}) error {
	return vm.call(ctx, "update_network", changes, nil)
}
