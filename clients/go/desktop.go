package sandbox

import "context"

// Desktop is a screen, keyboard, mouse and sound of the sandbox's own, started by the first call that needs them.
type Desktop struct{ vm *VM }

// Window is a window on the screen. Title and App are text of the program's own choice.
type Window struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	App   string `json:"app"`
}

// Point is a place on the screen.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// Region is a part of the screen.
type Region struct{ X, Y, Width, Height int }

// BrowserEndpoints say where a browser inside can be driven, on the machine that the sandbox is on.
type BrowserEndpoints struct {
	WS              string `json:"ws_endpoint"`
	CDP             string `json:"cdp_endpoint"`
	DebuggerAddress string `json:"debugger_address"`
}

// Desktop returns the sandbox's desktop.
func (vm *VM) Desktop() *Desktop { return &Desktop{vm} }

// Browser starts a browser inside, unless it runs, and returns where it can be driven.
func (vm *VM) Browser(ctx context.Context) (BrowserEndpoints, error) {
	var got BrowserEndpoints
	err := vm.call(ctx, "browser", nil, &got)
	return got, err
}

func (d *Desktop) do(ctx context.Context, method string, params map[string]interface{}, got interface{}) error {
	asked := map[string]interface{}{"do": method}
	for name, value := range params {
		asked[name] = value
	}
	return d.vm.call(ctx, "desktop", asked, got)
}

func (d *Desktop) data(ctx context.Context, method string, params map[string]interface{}) ([]byte, error) {
	var got struct {
		Data []byte `json:"data"`
	}
	err := d.do(ctx, method, params, &got)
	return got.Data, err
}

// Start starts the screen and returns the variables that programs inside find it by.
func (d *Desktop) Start(ctx context.Context) (map[string]string, error) {
	var got struct {
		Env map[string]string `json:"env"`
	}
	err := d.do(ctx, "start", nil, &got)
	return got.Env, err
}

// Size returns the screen's width and height.
func (d *Desktop) Size(ctx context.Context) (width, height int, err error) {
	var got struct{ Width, Height int }
	err = d.do(ctx, "size", nil, &got)
	return got.Width, got.Height, err
}

// Screenshot returns a PNG file of the screen, or of a region when that is not nil.
func (d *Desktop) Screenshot(ctx context.Context, region *Region) ([]byte, error) {
	var params map[string]interface{}
	if region != nil {
		params = map[string]interface{}{"x": region.X, "y": region.Y, "width": region.Width, "height": region.Height}
	}
	return d.data(ctx, "screenshot", params)
}

// Windows returns the open windows.
func (d *Desktop) Windows(ctx context.Context) ([]Window, error) {
	var got struct{ Windows []Window }
	err := d.do(ctx, "windows", nil, &got)
	return got.Windows, err
}

// Click clicks with a button: left, middle, right, back or forward.
func (d *Desktop) Click(ctx context.Context, x, y int, button string) error {
	return d.do(ctx, "click", map[string]interface{}{"x": x, "y": y, "button": button}, nil)
}

// DoubleClick clicks twice with the left button.
func (d *Desktop) DoubleClick(ctx context.Context, x, y int) error {
	return d.do(ctx, "click", map[string]interface{}{"x": x, "y": y, "count": 2}, nil)
}

// Move moves the pointer.
func (d *Desktop) Move(ctx context.Context, x, y int) error {
	return d.do(ctx, "move", map[string]interface{}{"x": x, "y": y}, nil)
}

// Drag presses the left button at the first point, moves over the others, and lets it go at the last.
func (d *Desktop) Drag(ctx context.Context, path []Point) error {
	return d.do(ctx, "drag", map[string]interface{}{"path": path}, nil)
}

// Scroll turns the wheel: dy notches down, dx to the right.
func (d *Desktop) Scroll(ctx context.Context, x, y, dx, dy int) error {
	return d.do(ctx, "scroll", map[string]interface{}{"x": x, "y": y, "dx": dx, "dy": dy}, nil)
}

// Pointer returns where the pointer is.
func (d *Desktop) Pointer(ctx context.Context) (Point, error) {
	var got Point
	err := d.do(ctx, "pointer", nil, &got)
	return got, err
}

// Type types text of any script, at most 4096 characters.
func (d *Desktop) Type(ctx context.Context, text string) error {
	return d.do(ctx, "type", map[string]interface{}{"text": text}, nil)
}

// Keypress presses keys: "Return", "ctrl+s", or several after one another.
func (d *Desktop) Keypress(ctx context.Context, keys string) error {
	return d.do(ctx, "keypress", map[string]interface{}{"keys": keys}, nil)
}

// RecordAudio returns a WAV file of what programs inside play, for 250 to 30000 milliseconds.
func (d *Desktop) RecordAudio(ctx context.Context, milliseconds int) ([]byte, error) {
	return d.data(ctx, "record_audio", map[string]interface{}{"duration_ms": milliseconds})
}

// PlayAudio plays a sound file inside.
func (d *Desktop) PlayAudio(ctx context.Context, data []byte, format string) error {
	return d.do(ctx, "play_audio", map[string]interface{}{"data": data, "format": format}, nil)
}

// StartVideo begins to record the screen, at that many frames per second.
func (d *Desktop) StartVideo(ctx context.Context, rate int) error {
	return d.do(ctx, "start_video", map[string]interface{}{"rate": rate}, nil)
}

// StopVideo ends the recording and returns it, a WebM file.
func (d *Desktop) StopVideo(ctx context.Context) ([]byte, error) {
	return d.data(ctx, "stop_video", nil)
}

// Capabilities returns what works here, and the program inside that does it; nil for what does not.
func (d *Desktop) Capabilities(ctx context.Context) (map[string]*string, error) {
	var got map[string]*string
	err := d.do(ctx, "capabilities", nil, &got)
	return got, err
}
