package wire

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

const (
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10

	pieceSize    = 1 << 17 // bytes of a frame that we send
	largestFrame = 1 << 24 // bytes of one that we take
)

// Refused is what a server answered instead of a WebSocket.
type Refused struct {
	Status  int
	Message string
}

func (r *Refused) Error() string { return r.Message }

// DialServer connects to a server's WebSocket. net/http makes the connection, by HTTP's own upgrade; the frames (RFC 6455)
// are ours, since the standard library has none and this module needs no other.
func DialServer(ctx context.Context, url, token string, secure *tls.Config, handlers Handlers) (*Conn, error) {
	nonce := make([]byte, 16)
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	key := base64.StdEncoding.EncodeToString(nonce)
	// The context of a request also ends its connection, which must live longer than the call.
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Connection": "Upgrade", "Upgrade": "websocket",
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key,
	} {
		request.Header.Set(name, value)
	}
	ours, cancel := context.WithCancel(context.Background())
	made := make(chan struct{})
	defer close(made)
	go func() {
		select {
		case <-ctx.Done():
			cancel()
		case <-made:
		}
	}()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request.WithContext(ours))
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("cannot reach the server: %w", err)
	}
	line, err := accepted(response, key)
	if err != nil {
		cancel()
		return nil, err
	}
	web := &webSocket{line: line, in: bufio.NewReaderSize(line, 1<<16), cancel: cancel}
	return newConn(web, web, web, handlers), nil
}

func accepted(response *http.Response, key string) (io.ReadWriteCloser, error) {
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		return nil, refusal(response)
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	line, ok := response.Body.(io.ReadWriteCloser)
	if !ok || response.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		response.Body.Close()
		return nil, errors.New("the server does not speak WebSocket")
	}
	return line, nil
}

func refusal(response *http.Response) error {
	var told struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if json.Unmarshal(body, &told) != nil || told.Error.Message == "" {
		told.Error.Message = strings.TrimSpace("the server refused: " + response.Status)
	}
	return &Refused{response.StatusCode, told.Error.Message}
}

// webSocket is the bytes in the frames: neither side's frames are messages, each is any part of the stream.
type webSocket struct {
	line   io.ReadWriteCloser
	in     *bufio.Reader
	left   uint64 // bytes of the current frame
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
}

func (w *webSocket) Read(into []byte) (int, error) {
	for w.left == 0 {
		if err := w.nextFrame(); err != nil {
			return 0, err
		}
	}
	if uint64(len(into)) > w.left {
		into = into[:w.left]
	}
	n, err := w.in.Read(into)
	w.left -= uint64(n)
	return n, err
}

var errFrame = errors.New("the server sent what is no frame")

// nextFrame reads a frame's head, and the whole of one that is for the connection itself.
func (w *webSocket) nextFrame() error {
	var head [2]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return err
	}
	kind, size := head[0]&0x0f, uint64(head[1]&0x7f)
	if head[0]&0x70 != 0 || head[1]&0x80 != 0 {
		return errFrame
	}
	if size >= 126 {
		long := make([]byte, 2+6*(size-126))
		if _, err := io.ReadFull(w.in, long); err != nil {
			return err
		}
		size = 0
		for _, digit := range long {
			size = size<<8 | uint64(digit)
		}
	}
	if size > largestFrame || kind > opPong || (kind > opBinary && (kind < opClose || size > 125)) {
		return errFrame
	}
	if kind <= opBinary {
		w.left = size
		return nil
	}
	content := make([]byte, size)
	if _, err := io.ReadFull(w.in, content); err != nil {
		return err
	}
	if kind == opPing {
		return w.send(opPong, content)
	}
	if kind == opClose {
		return io.EOF
	}
	return nil
}

func (w *webSocket) Write(data []byte) (int, error) {
	for at := 0; at < len(data); at += pieceSize {
		end := at + pieceSize
		if end > len(data) {
			end = len(data)
		}
		if err := w.send(opBinary, data[at:end]); err != nil {
			return at, err
		}
	}
	return len(data), nil
}

func (w *webSocket) send(kind byte, content []byte) error {
	frame := append(make([]byte, 0, len(content)+14), 0x80|kind)
	switch size := len(content); {
	case size < 126:
		frame = append(frame, 0x80|byte(size))
	case size < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(size))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(size))
	}
	var mask [4]byte
	if _, err := rand.Read(mask[:]); err != nil {
		return err
	}
	frame = append(frame, mask[:]...)
	for at, digit := range content {
		frame = append(frame, digit^mask[at&3])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrEnded
	}
	_, err := w.line.Write(frame)
	return err
}

// Close ends the connection without the other side's help.
func (w *webSocket) Close() error {
	w.kill()
	return nil
}

func (w *webSocket) hangUp() { _ = w.send(opClose, []byte{3, 232}) } // 1000: done

func (w *webSocket) kill() {
	w.cancel()
	w.line.Close()
}

func (w *webSocket) reap() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.kill()
	return nil
}
