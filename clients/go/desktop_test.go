package sandbox_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/example/sandbox"
)

func TestAScreenOfItsOwnIsSeenClickedAndTypedOn(t *testing.T) {
	vm := create(t, nil)
	desktop := vm.Desktop()
	if _, err := desktop.Start(background); err != nil {
		t.Fatal(err)
	}
	run(t, vm, "setsid xterm -geometry 90x30+0+0 -e 'cat > /tmp/note' >/dev/null 2>&1 </dev/null &")
	until := func(open bool) {
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			windows, err := desktop.Windows(background)
			if err != nil {
				t.Fatal(err)
			}
			if (len(windows) > 0) == open {
				return
			}
		}
		t.Fatal("it never came")
	}
	until(true)
	for _, err := range []error{
		desktop.Click(background, 200, 200, "left"), desktop.Type(background, "Grüße\n"), desktop.Keypress(background, "ctrl+d"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	until(false)
	if got := run(t, vm, "cat /tmp/note"); got != "Grüße\n" {
		t.Errorf("%q", got)
	}
	png, err := desktop.Screenshot(background, &sandbox.Region{X: 0, Y: 0, Width: 30, Height: 20})
	if err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
		t.Errorf("%v %q", err, png)
	}
	if place, err := desktop.Pointer(background); err != nil || place != (sandbox.Point{X: 200, Y: 200}) {
		t.Errorf("%v %v", place, err)
	}
}
