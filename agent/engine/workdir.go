package engine

import (
	"path/filepath"
	"strings"
	"time"
)

const stampLayout = "20060102-150405"

// workStamp names the folder of an attempt, so that one that goes on finds it again. Engines of one machine do not share any.
func (e *Engine) workStamp(started time.Time) string {
	return started.UTC().Format(stampLayout) + e.suffix()
}

// suffix keeps the folders of local plans apart from those of the hub's.
func (e *Engine) suffix() string {
	if e.Name == "hub" {
		return ""
	}
	return "." + strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, e.Name)
}

// cleanWork removes what earlier attempts left, and nothing that no attempt made.
func (e *Engine) cleanWork(keep string) error {
	if e.PreserveWorkDirectory {
		return nil
	}
	names, err := e.Host.ReadDir(e.WorkDirectory)
	if err != nil {
		return err
	}
	for _, name := range names {
		stamp, ours := strings.CutSuffix(name, e.suffix())
		if _, err := time.Parse(stampLayout, stamp); !ours || err != nil || name == keep {
			continue
		}
		if err := e.Host.RemoveAll(filepath.Join(e.WorkDirectory, name)); err != nil {
			return err
		}
	}
	return nil
}

// dropWork removes the folders of an attempt that has succeeded. After a failure they stay for people, until the next attempt.
func (e *Engine) dropWork(r record) {
	if e.PreserveWorkDirectory || !r.Succeeded {
		return
	}
	if err := e.Host.RemoveAll(filepath.Join(e.WorkDirectory, e.workStamp(r.Started))); err != nil {
		e.Log.Warn("The work folder cannot be removed", "error", err)
	}
}
