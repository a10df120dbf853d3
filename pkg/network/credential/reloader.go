package credential

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// pollInterval is the interval between two checks of the files. The Reloader polls with stat(2)
	// instead of using inotify(7), because it must detect that a path leads to another file,
	// through any number of replaced symbolic links (such as ..data in Kubernetes), on any file
	// system. A check costs about one microsecond per file.
	pollInterval = time.Second
	// ticketRotation is the interval between changes of the session ticket keys. A ticket is valid
	// for one to two intervals, unless a reload changes the trusted CAs, which invalidates all
	// tickets.
	ticketRotation = 12 * time.Hour
)

// Reloader watches the files of servers and clients and rotates the session ticket keys while Run
// runs. Safe for concurrent use.
type Reloader struct {
	log      *slog.Logger
	onReload func(err error) // see NewReloader

	mu      sync.Mutex
	watched []*watchedFiles // guarded by mu, as is the state that their reload functions change
	servers []*Server       // guarded by mu, as are their ticket keys
	clients []*Client       // guarded by mu
}

// watchedFiles is a set of files that are reloaded together.
type watchedFiles struct {
	owner     any // the *Server or *Client that uses the files
	files     []string
	stamps    []fileStamp
	reload    func() error
	lastError string // the error of the last reload; "": it succeeded
}

// fileStamp identifies a version of a file.
type fileStamp struct {
	info os.FileInfo // nil: the file does not exist
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info}
}

func (s fileStamp) same(other fileStamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) && s.info.Size() == other.info.Size() && s.info.ModTime().Equal(other.info.ModTime())
}

// NewReloader returns a Reloader. The Reloader logs reloads to log, and after each reload it calls
// onReload with the error, or nil. onReload must not call the Reloader. log and onReload may be
// nil. If a reload keeps failing with the same error, the Reloader reports the error once.
func NewReloader(log *slog.Logger, onReload func(err error)) *Reloader {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if onReload == nil {
		onReload = func(error) {}
	}
	return &Reloader{log: log, onReload: onReload}
}

// Run checks the files and rotates the ticket keys until ctx ends.
func (r *Reloader) Run(ctx context.Context) {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	rotate := time.NewTicker(ticketRotation)
	defer rotate.Stop()
	for {
		select {
		case <-poll.C:
			r.ReloadChanged()
		case <-rotate.C:
			r.Rotate()
		case <-ctx.Done():
			return
		}
	}
}

// ReloadChanged reloads changed files. If they cannot be loaded, for example because only some of
// the files have been replaced so far, the previous certificates stay active and the next call
// tries again.
func (r *Reloader) ReloadChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.watched {
		stamps := stampsOf(w.files)
		if slices.EqualFunc(stamps, w.stamps, fileStamp.same) {
			continue
		}
		err := w.reload()
		if err == nil {
			w.stamps, w.lastError = stamps, ""
			r.log.Info("certificates reloaded", "files", w.files)
			r.onReload(nil)
			continue
		}
		if text := err.Error(); text != w.lastError {
			w.lastError = text
			r.log.Error("changed certificates cannot be loaded, the previous certificates stay active", "files", w.files, "error", err)
			r.onReload(err)
		}
	}
}

func stampsOf(files []string) []fileStamp {
	out := make([]fileStamp, len(files))
	for i, path := range files {
		out[i] = stampOf(path)
	}
	return out
}

// Rotate rotates the session ticket keys.
func (r *Reloader) Rotate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, server := range r.servers {
		for _, c := range server.contexts {
			c.rotateTicketKey()
		}
	}
}

// watch makes ReloadChanged call reload when the stamp of one of the files differs from the one in
// stamps.
func (r *Reloader) watch(owner any, files []string, stamps []fileStamp, reload func() error) {
	if len(files) == 0 {
		return
	}
	w := &watchedFiles{owner: owner, files: files, stamps: stamps, reload: reload}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = append(r.watched, w)
}

func (r *Reloader) addServer(server *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = append(r.servers, server)
}

func (r *Reloader) addClient(client *Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, client)
}

func (r *Reloader) remove(owner any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched = slices.DeleteFunc(r.watched, func(w *watchedFiles) bool { return w.owner == owner })
	r.servers = slices.DeleteFunc(r.servers, func(server *Server) bool { return any(server) == owner })
	r.clients = slices.DeleteFunc(r.clients, func(client *Client) bool { return any(client) == owner })
}

// warnIfInvalid logs a warning if the local certificate has expired or is not yet valid, because
// peers will reject it.
func (r *Reloader) warnIfInvalid(m material) {
	if err := m.checkValidity(time.Now()); err != nil {
		r.log.Warn("peers will reject a local certificate", "error", err)
	}
}
