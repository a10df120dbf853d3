package main

import (
	"cmp"
	"log/slog"
	"sync"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/pkg/config"
)

// Levels beyond slog's own.
const (
	levelTrace    = slog.LevelDebug - 4
	levelCritical = slog.LevelError + 4
	levelOff      = slog.LevelError + 100
)

func levelOf(l config.Level) slog.Level {
	switch l {
	case config.LevelTrace:
		return levelTrace
	case config.LevelDebug:
		return slog.LevelDebug
	case config.LevelWarn:
		return slog.LevelWarn
	case config.LevelError:
		return slog.LevelError
	case config.LevelCritical:
		return levelCritical
	case config.LevelOff:
		return levelOff
	default:
		return slog.LevelInfo
	}
}

func levels() []config.Level {
	return []config.Level{config.LevelTrace, config.LevelDebug, config.LevelInfo, config.LevelWarn,
		config.LevelError, config.LevelCritical, config.LevelOff}
}

// levelName is the configuration's name of a level.
func levelName(l slog.Level) string {
	for _, name := range levels() {
		if levelOf(name) == l {
			return string(name)
		}
	}
	return l.String()
}

// openLog opens the operator's log.
func (p *process) openLog(c config.Log) error {
	p.level.Set(levelOf(c.Level))
	p.output = &logOutput{}
	if p.checking {
		p.log = slog.New(slog.NewTextHandler(&p.errors, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: onlyWhat}))
		return logfile.Check(cmp.Or(c.Path, stderrPath))
	}
	if err := p.output.move(c); err != nil {
		return err
	}
	o := &slog.HandlerOptions{Level: p.level, ReplaceAttr: levelNames}
	var h slog.Handler = slog.NewTextHandler(p.output, o)
	if c.JSON {
		h = slog.NewJSONHandler(p.output, o)
	}
	p.log = slog.New(h)
	return nil
}

// stderrPath is the path of a log that is written to standard error.
const stderrPath = "stderr"

// logOutput is where the operator's log goes. The zero value discards it. Safe for
// concurrent use.
type logOutput struct {
	mu   sync.Mutex // held while writing, so that a line is not written to a closed file
	path string     // guarded by mu
	out  *logfile.File
}

// Write is io.Writer's.
func (o *logOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out == nil {
		return len(line), nil
	}
	return o.out.Write(line)
}

// move makes the log go where c says. After an error it goes where it went before.
func (o *logOutput) move(c config.Log) error {
	path := cmp.Or(c.Path, stderrPath)
	roller := logfile.Roller(c.Roller)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out != nil && path == o.path {
		o.out.SetRoller(roller)
		return nil
	}
	next, err := logfile.Open(path, roller)
	if err != nil {
		return err
	}
	if o.out != nil {
		_ = o.out.Close() // there is no log left to report it to
	}
	o.path, o.out = path, next
	return nil
}

// reopen opens the file again after it was renamed.
func (o *logOutput) reopen() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out == nil {
		return nil
	}
	return o.out.Reopen()
}

func (o *logOutput) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out != nil {
		_ = o.out.Close() // there is no log left to report it to
		o.out = nil
	}
}

// onlyWhat leaves time and level out of a line.
func onlyWhat(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// levelNames writes the levels beyond slog's own by their names. Other attributes may
// be called "level", too.
func levelNames(_ []string, a slog.Attr) slog.Attr {
	if l, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey {
		return slog.String(slog.LevelKey, levelName(l))
	}
	return a
}
