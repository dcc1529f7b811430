package engine

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

const (
	historySuffix = "-applied.plan"
	maxHistory    = 64
)

// keepHistory keeps the plan in the folder of applied plans, unless the newest one there is the same. The folder is for people; that it
// cannot be written fails no plan.
func (e *Engine) keepHistory(plan []byte, checksum string) {
	if e.AppliedPlanDirectory == "" || len(plan) == 0 || !json.Valid(plan) {
		return
	}
	if err := e.addHistory(plan, checksum); err != nil {
		e.Log.Warn("The history of plans cannot be written", "error", err)
	}
}

func (e *Engine) addHistory(plan []byte, checksum string) error {
	if err := e.Host.MakeDir(e.AppliedPlanDirectory, host.Private(0o700)); err != nil {
		return err
	}
	names, err := e.Host.ReadDir(e.AppliedPlanDirectory)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, historySuffix) })
	if len(names) > 0 {
		newest, err := e.Host.ReadFile(filepath.Join(e.AppliedPlanDirectory, names[len(names)-1]))
		var kept struct{ Checksum string }
		if err == nil && json.Unmarshal(newest, &kept) == nil && kept.Checksum == checksum {
			return nil
		}
	}
	raw, err := json.Marshal(struct {
		Plan     json.RawMessage
		Checksum string
	}{plan, checksum})
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	name := now.Format(stampLayout) + historySuffix
	if slices.Contains(names, name) {
		name = now.Format(stampLayout+".000000") + historySuffix // it sorts after the other
	}
	if err := e.Host.WriteFile(filepath.Join(e.AppliedPlanDirectory, name), raw, host.Private(0o600)); err != nil {
		return err
	}
	for _, old := range names[:max(len(names)+1-maxHistory, 0)] {
		if err := e.Host.Remove(filepath.Join(e.AppliedPlanDirectory, old)); err != nil {
			return err
		}
	}
	return nil
}
