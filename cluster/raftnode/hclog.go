// Bridges the library's hclog lines into slog.

package raftnode

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// logBridge is an hclog.Logger over slog. Raft says at info level what an
// operator needs once per election; debug lines come per vote.
type logBridge struct {
	to   *slog.Logger
	name string
	args []any
}

func newLogBridge(to *slog.Logger) hclog.Logger {
	return logBridge{to: to.With("engine", "raft"), name: "raft"}
}

func slogLevel(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelError
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Info:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (b logBridge) Log(l hclog.Level, msg string, args ...any) {
	if l == hclog.Trace || l == hclog.Off || !b.enabled(l) {
		return
	}
	plain := make([]any, len(args))
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		plain[i] = a
	}
	b.to.Log(context.Background(), slogLevel(l), msg, plain...)
}

func (b logBridge) enabled(l hclog.Level) bool {
	return b.to.Enabled(context.Background(), slogLevel(l))
}

func (b logBridge) Trace(msg string, args ...any) {}
func (b logBridge) Debug(msg string, args ...any) { b.Log(hclog.Debug, msg, args...) }
func (b logBridge) Info(msg string, args ...any)  { b.Log(hclog.Info, msg, args...) }
func (b logBridge) Warn(msg string, args ...any)  { b.Log(hclog.Warn, msg, args...) }
func (b logBridge) Error(msg string, args ...any) { b.Log(hclog.Error, msg, args...) }

func (b logBridge) IsTrace() bool { return false }
func (b logBridge) IsDebug() bool { return b.enabled(hclog.Debug) }
func (b logBridge) IsInfo() bool  { return b.enabled(hclog.Info) }
func (b logBridge) IsWarn() bool  { return b.enabled(hclog.Warn) }
func (b logBridge) IsError() bool { return b.enabled(hclog.Error) }

func (b logBridge) ImpliedArgs() []any { return b.args }
func (b logBridge) Name() string       { return b.name }

func (b logBridge) With(args ...any) hclog.Logger {
	return logBridge{to: b.to.With(args...), name: b.name, args: append(append([]any{}, b.args...), args...)}
}

func (b logBridge) Named(name string) hclog.Logger      { return b.ResetNamed(b.name + "." + name) }
func (b logBridge) ResetNamed(name string) hclog.Logger { b.name = name; return b }

// SetLevel does nothing: slog's handler decides.
func (b logBridge) SetLevel(hclog.Level)  {}
func (b logBridge) GetLevel() hclog.Level { return hclog.NoLevel }

func (b logBridge) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(b.to.Handler(), slog.LevelInfo)
}

func (b logBridge) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return b.StandardLogger(o).Writer()
}
