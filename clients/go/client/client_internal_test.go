package client

import (
	"reflect"
	"testing"

	"github.com/example/sandbox"
)

func TestEveryEventHasATypeAndTheFieldThatItNames(t *testing.T) {
	for want, event := range map[string]sandbox.Event{
		"network": &sandbox.NetworkEvent{}, "file": &sandbox.FileEvent{}, "exec_start": &sandbox.ExecStartEvent{},
		"exec": &sandbox.ExecEvent{}, "log": &sandbox.LogEvent{}, "ask": &sandbox.Ask{}, "lifecycle": &sandbox.LifecycleEvent{},
	} {
		got := flat(event)
		fields, set := reflect.ValueOf(got), 0
		for i := 0; i < fields.NumField(); i++ {
			if field := fields.Field(i); field.Kind() == reflect.Ptr && !field.IsNil() {
				set++
			}
		}
		if got.Type != want || set != 1 {
			t.Errorf("%T became %+v", event, got)
		}
	}
}
