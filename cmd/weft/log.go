package main

import (
	"cmp"
	"io"
	"log/slog"
	"os"

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
	p.closeLog, p.reopenLog = func() {}, func() error { return nil }
	var out io.Writer
	if p.checking {
		p.log = slog.New(slog.DiscardHandler)
		return logfile.Check(cmp.Or(c.Path, "stderr"))
	}
	switch c.Path {
	case "", "stderr":
		out = os.Stderr
	case "stdout":
		out = os.Stdout
	default:
		f, err := logfile.Open(c.Path, logfile.Roller{
			MaxSizeMB: c.Roller.MaxSizeMB, Every: c.Roller.Every, MaxDays: c.Roller.MaxDays,
			Keep: c.Roller.Keep, Compress: c.Roller.Compress,
		})
		if err != nil {
			return err
		}
		out = f
		p.closeLog = func() { _ = f.Close() } // nobody is left to be told
		p.reopenLog = f.Reopen
	}
	p.log = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: p.level, ReplaceAttr: levelNames}))
	return nil
}

// levelNames writes the levels beyond slog's own by their names. Other attributes may
// be called "level", too.
func levelNames(_ []string, a slog.Attr) slog.Attr {
	if l, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey {
		return slog.String(slog.LevelKey, levelName(l))
	}
	return a
}
