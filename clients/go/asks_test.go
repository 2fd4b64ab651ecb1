package sandbox_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/example/sandbox"
	"github.com/example/sandbox/internal/loopback"
)

const fetch = `curl -sS http://api.test/asked`

func asking(t *testing.T, onAsk func(*sandbox.Ask) (string, error)) *sandbox.VM {
	settings := loopback.Origin(t, echo)
	settings["network"].(map[string]interface{})["ask"] = true
	return create(t, &sandbox.Config{
		Settings: settings, Stderr: io.Discard, Network: sandbox.NetworkConfig{Hooks: sandbox.HTTPHooks{OnAsk: onAsk}},
	})
}

func TestOnAskAllowsAHostThatIsNotListed(t *testing.T) {
	asked := make(chan *sandbox.Ask, 1)
	vm := asking(t, func(ask *sandbox.Ask) (string, error) {
		asked <- ask
		return sandbox.AllowOnce, nil
	})
	if got := run(t, vm, fetch); got != `GET /asked "" ` {
		t.Errorf("the sandbox got %q", got)
	}
	ask := <-asked
	if ask.Kind != "host" || ask.Host != "api.test" || ask.Port != 80 || ask.Method != "GET" || ask.Path != "/asked" ||
		ask.Program != "curl" || ask.PID < 2 {
		t.Errorf("the question was %+v", ask)
	}
}

func TestOnAskThatDoesNotAllowDenies(t *testing.T) {
	for name, test := range map[string]struct {
		answer string
		err    error
		panics bool
		want   string
	}{
		"deny":     {sandbox.Deny, nil, false, "its owner was asked and denied it"},
		"error":    {sandbox.AllowAlways, errors.New("no"), false, "its owner was asked and denied it"},
		"panic":    {"", nil, true, "its owner was asked and denied it"},
		"nonsense": {"yes", nil, false, "its owner was asked and denied it"},
		"nothing":  {"", nil, false, "nobody was there to answer"},
	} {
		test := test
		t.Run(name, func(t *testing.T) {
			vm := asking(t, func(*sandbox.Ask) (string, error) {
				if test.panics {
					panic("a bug")
				}
				return test.answer, test.err
			})
			if got := run(t, vm, fetch); !strings.Contains(got, test.want) {
				t.Errorf("the sandbox got %q", got)
			}
		})
	}
}

func TestAProgramThatWatchesAnswers(t *testing.T) {
	vm := asking(t, nil)
	events := vm.Events()
	if asks, err := vm.Asks(background, true); err != nil || len(asks) != 0 {
		t.Fatal(asks, err)
	}
	answered := make(chan error, 1)
	go func() {
		for event := range events {
			if ask, ok := event.(*sandbox.Ask); ok && ask.State == "waiting" {
				waiting, err := vm.Asks(background, false)
				if err != nil || len(waiting) != 1 || waiting[0].ID != ask.ID {
					answered <- errors.New("the question is not among those that wait")
					return
				}
				answered <- vm.Answer(background, ask.ID, sandbox.AllowSandbox)
				return
			}
		}
	}()
	if got := run(t, vm, fetch+"; "+fetch); strings.Count(got, "GET /asked") != 2 {
		t.Errorf("the sandbox got %q", got)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := vm.Answer(background, 1000000, sandbox.AllowOnce); err == nil {
		t.Error("a question that there is not was answered")
	}
}
