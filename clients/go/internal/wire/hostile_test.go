package wire

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// hostile is a server that speaks WebSocket, and then does what a test has it do.
func hostile(t *testing.T, then func(line net.Conn)) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		line, _, err := answer.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer line.Close()
		sum := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		accept := base64.StdEncoding.EncodeToString(sum[:])
		_, _ = io.WriteString(line, "HTTP/1.1 101 .\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+accept+"\r\n\r\n")
		then(line)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func frame(content []byte) []byte {
	head := binary.BigEndian.AppendUint64([]byte{0x82, 127}, uint64(len(content)))
	return append(head, content...)
}

func dialHostile(t *testing.T, url string) *Conn {
	t.Helper()
	conn, err := DialServer(context.Background(), url, "token", nil, Handlers{})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func ends(t *testing.T, conn *Conn) {
	t.Helper()
	select {
	case <-conn.Done():
	case <-time.After(time.Minute):
		t.Fatal("the connection goes on")
	}
	if err := conn.Call(context.Background(), "info", nil, nil); !errors.Is(err, ErrEnded) {
		t.Fatalf("a call on it says %v", err)
	}
	_ = conn.Close(context.Background())
}

func TestALineWithoutAnEndEndsTheConnection(t *testing.T) {
	before := answerLimit
	answerLimit = 4 << 20
	t.Cleanup(func() { answerLimit = before })
	conn := dialHostile(t, hostile(t, func(line net.Conn) {
		piece := frame(bytes.Repeat([]byte("x"), 1<<20))
		for {
			if _, err := line.Write(piece); err != nil {
				return
			}
		}
	}))
	ends(t, conn)
}

func TestAServerThatCallsHooksAndReadsNothingEndsTheConnection(t *testing.T) {
	conn := dialHostile(t, hostile(t, func(line net.Conn) {
		id, _ := json.Marshal(strings.Repeat("i", 1<<16))
		call := frame([]byte(`{"jsonrpc":"2.0","method":"hook","id":` + string(id) + `,"params":{}}` + "\n"))
		for {
			if _, err := line.Write(call); err != nil {
				return
			}
		}
	}))
	ends(t, conn)
}

func TestInvalidFramesEndTheConnection(t *testing.T) {
	for _, said := range []string{
		"\xf2\x00", "\x82\x81aaaax", "\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff", "\x8b\x00", "\x89\x7e\x00\x7e", "\x82\x05nojs\n", "\x82\x05null\n",
	} {
		said := said
		conn := dialHostile(t, hostile(t, func(line net.Conn) { _, _ = io.WriteString(line, said) }))
		ends(t, conn)
	}
}

func TestARefusalIsReadAsFarAsItIsOfUse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		answer.WriteHeader(http.StatusForbidden)
		for piece := bytes.Repeat([]byte("x"), 1<<16); ; {
			if _, err := answer.Write(piece); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	_, err := DialServer(context.Background(), server.URL, "token", nil, Handlers{})
	var refused *Refused
	if !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
		t.Fatalf("it says %v", err)
	}
}
