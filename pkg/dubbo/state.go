package dubbo

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// stateVersion is the version of the state file's format. Weft rejects files of other versions.
const stateVersion = 1

// maxStateSize bounds the size of a state file, in bytes.
const maxStateSize = 1 << 30

// stateFile is the format of the file: the content, and its version and checksum.
type stateFile struct {
	Version  int             `json:"weft_dubbo_services"`
	Checksum string          `json:"sha256"`
	Content  json.RawMessage `json:"content"`
}

// state is the content of the state file.
type state struct {
	Saved      time.Time         `json:"saved"`
	Published  []stateEntry      `json:"published,omitempty"`
	Subscribed []stateSubscribed `json:"subscribed,omitempty"`
}

type stateEntry struct {
	Request Request   `json:"request"`
	Since   time.Time `json:"since"`
}

type stateSubscribed struct {
	stateEntry

	Listed        time.Time  `json:"listed,omitzero"` // zero: no snapshot
	Providers     []stateURL `json:"providers,omitempty"`
	Configurators []stateURL `json:"configurators,omitempty"`
	Routers       []stateURL `json:"routers,omitempty"`
}

// stateURL is a URL in the state file. It implements encoding.TextMarshaler, so that encoding needs
// no copy of all URLs as strings.
type stateURL struct {
	registry.URL

	problem error // why the URL is invalid; nil: it is valid
}

// MarshalText implements encoding.TextMarshaler.
func (u stateURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *stateURL) UnmarshalText(text []byte) error {
	u.URL, u.problem = registry.Parse(string(text))
	return nil
}

// encode returns the state file, in parts.
func (s *state) encode() (parts [][]byte, err error) {
	content, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	// The outer object is written by hand: json.Marshal would scan all of content again.
	head := fmt.Sprintf(`{"weft_dubbo_services":%d,"sha256":"%s","content":`, stateVersion, hex.EncodeToString(sum[:]))
	return [][]byte{[]byte(head), content, []byte("}")}, nil
}

// parseState parses a state file. An error says why the file is invalid.
func parseState(text []byte) (*state, error) {
	var f stateFile
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	if f.Version != stateVersion {
		return nil, fmt.Errorf("version %d is not supported, expected %d", f.Version, stateVersion)
	}
	if sum := sha256.Sum256(f.Content); hex.EncodeToString(sum[:]) != f.Checksum {
		return nil, errors.New("checksum mismatch")
	}
	s := &state{}
	if err := json.Unmarshal(f.Content, s); err != nil {
		return nil, err
	}
	return s, nil
}

// readState reads a state file. The error wraps fs.ErrNotExist if there is none.
func readState(path string) (*state, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxStateSize {
		return nil, fmt.Errorf("the file has %d bytes; the maximum is %d", info.Size(), maxStateSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseState(text)
}

// tempInfix is part of the names of temporary files that replace the state file.
const tempInfix = ".new-"

// sweepState removes the temporary state files of killed processes, because the files contain
// passwords. It keeps files that are newer than a minute: they may belong to a running process.
func sweepState(path string) error {
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), filepath.Base(path)+tempInfix) {
			continue
		}
		if info, infoErr := f.Info(); infoErr == nil && time.Since(info.ModTime()) > time.Minute {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), f.Name())))
		}
	}
	return err
}

// writeState replaces a state file atomically. Only its owner can read it, because it contains
// passwords.
func writeState(path string, parts [][]byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, filepath.Base(path)+tempInfix+"*") // with mode 0600
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = temp.Write(part)
		}
	}
	if err = errors.Join(err, temp.Sync(), temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // so that the new name survives a crash
}

func stateURLs(urls []registry.URL) []stateURL {
	stored := make([]stateURL, 0, len(urls))
	for _, u := range urls {
		stored = append(stored, stateURL{URL: u})
	}
	return stored
}
