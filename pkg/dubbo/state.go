package dubbo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// stateURL encodes itself as text, to avoid a copy of all texts that would be as large as the file.
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
	// json.Marshal would scan all of content again.
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

// readState reads a state file. The error is fs.ErrNotExist if there is none.
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

// sweepState removes temporary files of processes that were killed while they wrote a state file,
// because they contain passwords. Files that are newer than a minute may belong to a running
// process.
func sweepState(path string) error {
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), filepath.Base(path)+tempInfix) {
			continue
		}
		if info, gone := f.Info(); gone == nil && time.Since(info.ModTime()) > time.Minute {
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
	next, err := os.CreateTemp(dir, filepath.Base(path)+tempInfix+"*") // with mode 0600
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = next.Write(part)
		}
	}
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // so that the new name survives a crash
}

// Delays between a change and writing the state file.
const (
	saveSoon     = 10 * time.Millisecond // after a request
	saveLater    = 30 * time.Second      // after a snapshot
	minSaveGap   = time.Second           // minimum time between the end of a write and the next write
	maxSaveShare = 10                    // writing takes at most one in maxSaveShare parts of the time
)

// saveSchedule schedules writes of the state file.
type saveSchedule struct {
	wake  chan struct{} // at has become earlier
	at    time.Time     // guarded by Discovery.mu; zero: no write is scheduled
	after time.Time     // guarded by Discovery.mu; the earliest next write, to limit the rate
}

// save schedules a write of the state file. mu is held.
func (h *Discovery) save(after time.Duration) {
	if h.options.Config.StateFile == "" {
		return
	}
	at := laterOf(time.Now().Add(after), h.saveSchedule.after)
	if !h.saveSchedule.at.IsZero() && !at.Before(h.saveSchedule.at) {
		return
	}
	h.saveSchedule.at = at
	select {
	case h.saveSchedule.wake <- struct{}{}:
	default:
	}
}

// saveLoop writes the state file when a write is due, until ctx ends.
func (h *Discovery) saveLoop(ctx context.Context) {
	if h.options.Config.StateFile == "" {
		return
	}
	timer := time.NewTimer(idleWait)
	defer timer.Stop()
	for {
		h.mu.Lock()
		at := h.saveSchedule.at
		h.mu.Unlock()
		wait := idleWait
		if !at.IsZero() {
			wait = time.Until(at)
		}
		timer.Reset(max(0, wait))
		select {
		case <-h.saveSchedule.wake:
			continue
		case <-timer.C:
			if !at.IsZero() {
				h.saveNow()
			}
		case <-ctx.Done():
			return
		}
	}
}

// saveNow writes the state file.
func (h *Discovery) saveNow() {
	began := time.Now()
	h.mu.Lock()
	h.saveSchedule.at = time.Time{}
	urls := h.snapshotState()
	h.mu.Unlock()
	s := urls.state()
	s.Saved = time.Now()
	parts, err := s.encode()
	if err == nil {
		err = writeState(h.options.Config.StateFile, parts)
	}
	if err != nil {
		h.saveFailures.Add(1)
		h.options.Log.Error("cannot write the state file; retrying", logFile, h.options.Config.StateFile, logError, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	end := time.Now()
	h.saveSchedule.after = end.Add(max(minSaveGap, (maxSaveShare-1)*end.Sub(began)))
	if !h.saveSchedule.at.IsZero() { // scheduled during the write
		h.saveSchedule.at = laterOf(h.saveSchedule.at, h.saveSchedule.after)
	}
	if err != nil {
		h.save(saveLater)
	}
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// stateSnapshot contains the input of state; views are immutable.
type stateSnapshot struct {
	published  []stateEntry
	subscribed []stateSubscribed
	snapshots  []registry.Snapshot // parallel to followed
}

// snapshotState must be called with mu held.
func (h *Discovery) snapshotState() *stateSnapshot {
	s := &stateSnapshot{}
	for _, p := range h.published {
		s.published = append(s.published, stateEntry{p.spec.Request, p.since})
	}
	for _, f := range h.subscriptions {
		s.subscribed = append(s.subscribed, stateSubscribed{stateEntry: stateEntry{f.spec.Request, f.since}, Listed: f.evaluatedAt})
		s.snapshots = append(s.snapshots, f.effective())
	}
	return s
}

// state converts a snapshot, sorted by time.
func (s *stateSnapshot) state() *state {
	out := &state{Published: s.published, Subscribed: s.subscribed}
	for i := range out.Subscribed {
		f, v := &out.Subscribed[i], s.snapshots[i]
		f.Providers, f.Configurators, f.Routers = stateURLs(v.Providers), stateURLs(v.Configurators), stateURLs(v.Routers)
	}
	slices.SortFunc(out.Published, func(a, b stateEntry) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(out.Subscribed, func(a, b stateSubscribed) int { return a.Since.Compare(b.Since) })
	return out
}

func stateURLs(urls []registry.URL) []stateURL {
	all := make([]stateURL, 0, len(urls))
	for _, u := range urls {
		all = append(all, stateURL{URL: u})
	}
	return all
}

// restore restores the contents of the state file. New calls it with mu held.
func (h *Discovery) restore() {
	path := h.options.Config.StateFile
	if path == "" {
		return
	}
	if err := sweepState(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.options.Log.Warn("cannot remove a leftover state file", logFile, path, logError, err)
	}
	s, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		h.moveUnreadable(path, err)
		return
	}
	for _, p := range s.Published {
		h.restorePublished(p)
	}
	for _, f := range s.Subscribed {
		h.restoreSubscribed(f, s.Saved)
	}
	h.planRestored()
}

// moveUnreadable renames a state file that cannot be read, so that it is not overwritten and can be
// examined.
func (h *Discovery) moveUnreadable(path string, why error) {
	aside := path + ".unusable-" + strings.ReplaceAll(time.Now().UTC().Format("20060102T150405.000"), ".", "")
	err := os.Rename(path, aside)
	h.options.Log.Error("cannot read the state file; nothing is published or subscribed until it is requested again",
		logFile, path, logError, errors.Join(why, err), logAside, aside)
}

func (h *Discovery) restorePublished(p stateEntry) {
	w, err := h.validate(p.Request, opPublish)
	if err != nil {
		h.options.Log.Error("cannot restore a published service", logService, p.Request.Service.Interface, logError, err)
		return
	}
	if h.published[w.id] != nil {
		return
	}
	h.lastStamp = laterPast(h.lastStamp, p.Since)
	restored := &publication{spec: w, since: p.Since, urlRegistration: h.newRegistration(h.openSession(w.session))}
	h.published[w.id] = restored
	h.publish(restored)
}

func (h *Discovery) restoreSubscribed(f stateSubscribed, saved time.Time) {
	w, err := h.validate(f.Request, opSubscribe)
	if err != nil {
		h.options.Log.Error("cannot restore a subscription", logService, f.Request.Service.Interface, logError, err)
		return
	}
	if h.subscriptions[w.id] != nil {
		return
	}
	s := h.subscribe(w)
	if !f.Listed.IsZero() {
		s.current = registry.Snapshot{Providers: h.validURLs(f.Providers), Configurators: h.validURLs(f.Configurators), Routers: h.validURLs(f.Routers)}
		s.evaluatedAt, s.restored, s.validUntil = f.Listed, true, saved
	}
	s.deadline = time.Now() // no call waits for it
}

func laterPast(a, b time.Time) time.Time {
	if b.After(a) && b.Before(time.Now()) {
		return b
	}
	return a
}

func (h *Discovery) validURLs(all []stateURL) (urls []registry.URL) {
	urls = slices.Grow(urls, len(all))
	for _, u := range all {
		if u.problem != nil {
			h.options.Log.Warn("invalid URL in the state file", logError, u.problem)
			continue
		}
		urls = append(urls, u.URL)
	}
	return urls
}

// planRestored plans the restored services, so that Resources returns them.
func (h *Discovery) planRestored() {
	now := time.Now()
	for _, s := range h.services {
		a := h.planService(s, now, nil)
		s.active, s.reapply = a.next, true
	}
	h.dirty = map[*service]struct{}{}
}
