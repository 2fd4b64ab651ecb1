// Package core is what every flavour of this client shares: the methods of one sandbox.
package core

import (
	"context"
	"encoding/json"
	"time"

	"github.com/example/sandbox/internal/wire"
)

const (
	page  = 4 << 20 // large files travel in pieces of this size
	ahead = 3       // of which so many are under way at a time
)

// Session is one sandbox, driven over a conversation.
type Session struct {
	Conn *wire.Conn
	Name string            // its id
	Seen map[string]string // variables as the tenant sees them
	owns bool
}

// Create makes the sandbox of a conversation that was started for it.
func Create(ctx context.Context, conn *wire.Conn, config interface{}) (*Session, error) {
	var created struct {
		ID  string            `json:"id"`
		Env map[string]string `json:"env"`
	}
	if err := conn.Call(ctx, "create", config, &created); err != nil {
		conn.Close()
		return nil, explained(err)
	}
	return &Session{Conn: conn, Name: created.ID, Seen: created.Env, owns: true}, nil
}

// Attached is a sandbox that runs already.
func Attached(conn *wire.Conn, id string) *Session {
	return &Session{Conn: conn, Name: id}
}

// ID is the sandbox's name: vm- and eight hexadecimal digits.
func (s *Session) ID() string { return s.Name }

// Env is the variables that were asked for, as the tenant sees them: placeholders where a secret was named.
func (s *Session) Env() map[string]string { return s.Seen }

// Close ends the sandbox that this client started; only leaves one that it attached to. Harmless to repeat.
func (s *Session) Close() error {
	if s.owns {
		s.owns = false
		_ = s.Conn.Call(context.Background(), "close", map[string]any{"grace": 0}, nil) // an end of the conversation ends it as well
	}
	return s.Conn.Close()
}

// UpdateNetwork changes the network rules of the living sandbox.
func (s *Session) UpdateNetwork(ctx context.Context, changes map[string]interface{}) error {
	return s.call(ctx, "update_network", changes, nil)
}

// FileInfo is an entry of a directory inside, or what Stat says of a path.
type FileInfo struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	IsDir   bool   `json:"is_dir"`
	MtimeNS int64  `json:"mtime_ns"`
}

// ModTime is when it was changed last; only Stat knows.
func (f FileInfo) ModTime() time.Time { return time.Unix(0, f.MtimeNS) }

// WriteFileContext makes or replaces a file inside.
func (s *Session) WriteFileContext(ctx context.Context, path string, content []byte, mode uint32) error {
	type piece struct {
		Path    string `json:"path"`
		Content []byte `json:"content"` // encoding/json makes base64 of it
		Mode    uint32 `json:"mode"`
		Offset  int    `json:"offset"`
	}
	part := func(at int) []byte {
		if end := at + page; end < len(content) {
			return content[at:end]
		}
		return content[at:]
	}
	if content == nil {
		content = []byte{}
	}
	if err := s.call(ctx, "write_file", piece{path, part(0), mode, 0}, nil); err != nil {
		return err
	}
	var under []*wire.Stream
	for at := page; at < len(content); at += page {
		stream, err := s.Conn.Stream("write_file", piece{path, part(at), mode, at})
		if err != nil {
			return explained(err)
		}
		under = append(under, stream)
		if len(under) >= ahead {
			if err := answered(ctx, under[0], nil); err != nil {
				return err
			}
			under = under[1:]
		}
	}
	for _, stream := range under {
		if err := answered(ctx, stream, nil); err != nil {
			return err
		}
	}
	return nil
}

// ReadFileContext is the content of a file inside.
func (s *Session) ReadFileContext(ctx context.Context, path string) ([]byte, error) {
	type piece struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset"`
		Length int    `json:"length"`
	}
	type got struct {
		Content []byte `json:"content"`
		Size    int64  `json:"size"`
	}
	var first got
	if err := s.call(ctx, "read_file", piece{path, 0, page}, &first); err != nil {
		return nil, err
	}
	content := first.Content
	var under []*wire.Stream
	take := func() error {
		var next got
		err := answered(ctx, under[0], &next)
		content = append(content, next.Content...)
		under = under[1:]
		return err
	}
	for at := int64(page); at < first.Size; at += page {
		stream, err := s.Conn.Stream("read_file", piece{path, at, page})
		if err != nil {
			return nil, explained(err)
		}
		under = append(under, stream)
		if len(under) >= ahead {
			if err := take(); err != nil {
				return nil, err
			}
		}
	}
	for len(under) > 0 {
		if err := take(); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// ListFilesContext is what a directory inside holds.
func (s *Session) ListFilesContext(ctx context.Context, path string) ([]FileInfo, error) {
	var got struct {
		Files []FileInfo `json:"files"`
	}
	err := s.call(ctx, "list_files", map[string]string{"path": path}, &got)
	return got.Files, err
}

// Stat says what a path inside is.
func (s *Session) Stat(ctx context.Context, path string) (FileInfo, error) {
	got := FileInfo{Name: path}
	err := s.call(ctx, "stat", map[string]string{"path": path}, &got)
	return got, err
}

// Mkdir makes a directory inside, and those above it.
func (s *Session) Mkdir(ctx context.Context, path string) error {
	return s.call(ctx, "mkdir", map[string]string{"path": path}, nil)
}

// Remove deletes a file or directory inside.
func (s *Session) Remove(ctx context.Context, path string, recursive bool) error {
	return s.call(ctx, "remove", map[string]interface{}{"path": path, "recursive": recursive}, nil)
}

// Rename renames inside.
func (s *Session) Rename(ctx context.Context, from, to string) error {
	return s.call(ctx, "rename", map[string]string{"old": from, "new": to}, nil)
}

func (s *Session) call(ctx context.Context, method string, params, result interface{}) error {
	return explained(s.Conn.Call(ctx, method, params, result))
}

func answered(ctx context.Context, stream *wire.Stream, result interface{}) error {
	raw, err := stream.Next(ctx)
	if err != nil {
		return explained(err)
	}
	stream.Finish()
	if result == nil {
		return nil
	}
	return json.Unmarshal(raw, result)
}
