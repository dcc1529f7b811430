package engine

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/drover-dev/drover/agent/engine/journal"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/source"
)

const (
	appliedPlanSuffix = "-applied.plan"
	maxAppliedPlans   = 64
)

// appliedPlan is the content of a file in the folder of applied plans, in the form of the legacy agent.
type appliedPlan struct {
	Plan     json.RawMessage
	Checksum string
}

// keepAppliedPlan keeps a plan in the folder of applied plans, unless the newest one there is the same. The folder is for people: that it
// cannot be written fails no plan.
func (e *Engine) keepAppliedPlan(plan []byte, checksum string) {
	if e.AppliedPlanDirectory == "" || len(plan) == 0 || !json.Valid(plan) {
		return
	}
	e.warn("Keeping the applied plan failed", e.addAppliedPlan(plan, checksum))
}

func (e *Engine) addAppliedPlan(plan []byte, checksum string) error {
	if err := e.Host.MkdirAll(e.AppliedPlanDirectory, fs.WithMode(0o700)); err != nil {
		return err
	}
	names, newest, err := e.appliedPlans()
	if err != nil || newest == checksum {
		return err
	}
	raw, err := json.Marshal(appliedPlan{plan, checksum})
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	name := now.Format(timestampLayout) + appliedPlanSuffix
	if slices.Contains(names, name) {
		name = now.Format(timestampLayout+".000000") + appliedPlanSuffix // it sorts after the other
	}
	if err := e.Host.WriteFile(filepath.Join(e.AppliedPlanDirectory, name), raw, fs.WithMode(0o600)); err != nil {
		return err
	}
	for _, old := range names[:max(len(names)+1-maxAppliedPlans, 0)] {
		if err := e.Host.Remove(filepath.Join(e.AppliedPlanDirectory, old)); err != nil {
			return err
		}
	}
	return nil
}

// appliedPlans lists the applied plans, the oldest first, and the checksum of the newest, which is empty where it cannot be read.
func (e *Engine) appliedPlans() (names []string, newest string, err error) {
	if names, err = e.Host.ReadDir(e.AppliedPlanDirectory); err != nil {
		return nil, "", err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, appliedPlanSuffix) })
	if len(names) == 0 {
		return nil, "", nil
	}
	raw, err := e.Host.ReadFile(filepath.Join(e.AppliedPlanDirectory, names[len(names)-1]))
	var kept appliedPlan
	if err != nil || json.Unmarshal(raw, &kept) != nil {
		return names, "", nil
	}
	return names, kept.Checksum, nil
}

// appliedByLegacyAgent reports whether an agent without this journal has applied the plan on this machine: the source says that it is
// applied, and the newest plan in the folder of applied plans is the same. The source alone does not prove it, since a machine that was
// recreated under the same name has nothing of it.
func (e *Engine) appliedByLegacyAgent(s source.Snapshot, r journal.Record) bool {
	checksum := s.Delivery.Checksum()
	if s.Status.State != "" || s.Status.AppliedChecksum != checksum || r.Checksum != "" || e.AppliedPlanDirectory == "" {
		return false
	}
	_, newest, err := e.appliedPlans()
	return err == nil && newest == checksum
}
