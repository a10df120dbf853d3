package main

import (
	"cmp"
	"log/slog"
	"sync"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/pkg/config"
)

// Levels that slog does not define.
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

// levelName returns the name of a level in the configuration.
func levelName(l slog.Level) string {
	for _, name := range levels() {
		if levelOf(name) == l {
			return string(name)
		}
	}
	return l.String()
}

// openLog opens the process log. If p.checking is set, it only verifies that the log could be
// opened, and p.log collects errors and warnings in p.logged.
func (p *process) openLog(c config.Log) error {
	p.level.Set(levelOf(c.Level))
	p.output = &logOutput{}
	if p.checking {
		p.log = slog.New(slog.NewTextHandler(&p.logged, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: dropTimeAndLevel}))
		return logfile.Check(cmp.Or(c.Path, stderrPath))
	}
	if err := p.output.redirect(c); err != nil {
		return err
	}
	o := &slog.HandlerOptions{Level: p.level, ReplaceAttr: replaceLevel}
	var h slog.Handler = slog.NewTextHandler(p.output, o)
	if c.JSON {
		h = slog.NewJSONHandler(p.output, o)
	}
	p.log = slog.New(h)
	return nil
}

// stderrPath is the path of a log that is written to standard error.
const stderrPath = "stderr"

// logOutput is the destination of the process log. The zero value discards the log. It is safe for
// concurrent use.
type logOutput struct {
	mu   sync.Mutex    // Write holds mu while it writes, so that no line goes to a closed file
	path string        // guarded by mu
	out  *logfile.File // guarded by mu; nil: the log is discarded
}

// Write implements io.Writer.
func (o *logOutput) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out == nil {
		return len(line), nil
	}
	return o.out.Write(line)
}

// redirect changes the destination of the log to the path in c. On an error the destination stays
// the same.
func (o *logOutput) redirect(c config.Log) error {
	path := cmp.Or(c.Path, stderrPath)
	roller := logfile.Roller(c.Rotation)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out != nil && path == o.path {
		o.out.SetRotation(roller)
		return nil
	}
	next, err := logfile.Open(path, roller)
	if err != nil {
		return err
	}
	if o.out != nil {
		_ = o.out.Close() // does not affect the new log
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
		_ = o.out.Close() // there is no log left for the error
		o.out = nil
	}
}

// dropTimeAndLevel removes time and level from a line.
func dropTimeAndLevel(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// replaceLevel writes levels by their names in the configuration. It checks the type of the value,
// because other attributes may also have the key "level".
func replaceLevel(_ []string, a slog.Attr) slog.Attr {
	if l, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey {
		return slog.String(slog.LevelKey, levelName(l))
	}
	return a
}
