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
	// pollInterval is how often files are looked at. It is stat(2) and not inotify(7):
	// what is to be seen is that a path leads to another file, through however many
	// symbolic links that are swapped (Kubernetes' ..data), on whatever file system.
	// A look costs a microsecond a file.
	pollInterval = time.Second
	// ticketRotation is how often the keys of session tickets change. Tickets are good
	// for that long at least, and twice that at most.
	ticketRotation = 12 * time.Hour
)

// Reloader watches the files of servers and clients, and changes the keys of session
// tickets, as long as Run runs. Safe for concurrent use.
type Reloader struct {
	log *slog.Logger
	// onReload, nil or not, is called after files that changed were read again.
	onReload func(err error)

	mu      sync.Mutex
	watched []*watchedFiles // guarded by mu, with what reload changes
	servers []*Server       // guarded by mu, with their tickets
}

// watchedFiles are files that belong together.
type watchedFiles struct {
	owner     any
	files     []string
	stamps    []fileStamp
	reload    func() error
	lastError string // what kept the last reload from taking effect
}

// fileStamp tells a file from others, and from itself when it was written to.
type fileStamp struct {
	info os.FileInfo // nil: it is not there
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

// NewReloader returns a store. log, which may be nil, hears of files that changed; so
// does told, which may be nil: with why they are not used, if they are not.
func NewReloader(log *slog.Logger, told func(err error)) *Reloader {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if told == nil {
		told = func(error) {}
	}
	return &Reloader{log: log, onReload: told}
}

// Run looks at the files until ctx ends.
func (s *Reloader) Run(ctx context.Context) {
	look := time.NewTicker(pollInterval)
	defer look.Stop()
	rotate := time.NewTicker(ticketRotation)
	defer rotate.Stop()
	for {
		select {
		case <-look.C:
			s.ReloadChanged()
		case <-rotate.C:
			s.Rotate()
		case <-ctx.Done():
			return
		}
	}
}

// ReloadChanged reads again what has changed. Files that do not fit each other, as while they
// are being replaced one after the other, leave what was there in use, and are looked
// at the next time.
func (s *Reloader) ReloadChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watched {
		stamps := stampsOf(w.files)
		if slices.EqualFunc(stamps, w.stamps, fileStamp.same) {
			continue
		}
		err := w.reload()
		if err == nil {
			w.stamps, w.lastError = stamps, ""
			s.log.Info("certificates reloaded", "files", w.files)
			s.onReload(nil)
			continue
		}
		if why := err.Error(); why != w.lastError {
			w.lastError = why
			s.log.Error("changed certificates cannot be loaded, the previous certificates stay active", "files", w.files, "error", err)
			s.onReload(err)
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

// Rotate changes the keys of session tickets.
func (s *Reloader) Rotate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		for _, o := range server.contexts {
			o.rotateTicketKey()
		}
	}
}

// watch has reload called when one of the files is another than when it was stamped.
func (s *Reloader) watch(owner any, files []string, stamps []fileStamp, reload func() error) {
	if len(files) == 0 {
		return
	}
	w := &watchedFiles{owner: owner, files: files, stamps: stamps, reload: reload}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = append(s.watched, w)
}

func (s *Reloader) addServer(server *Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = append(s.servers, server)
}

func (s *Reloader) remove(owner any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = slices.DeleteFunc(s.watched, func(w *watchedFiles) bool { return w.owner == owner })
	s.servers = slices.DeleteFunc(s.servers, func(server *Server) bool { return any(server) == owner })
}

// warn tells of a certificate that peers will refuse.
func (s *Reloader) warn(m material) {
	if err := m.checkValidity(time.Now()); err != nil {
		s.log.Warn("peers will reject a local certificate", "error", err)
	}
}
