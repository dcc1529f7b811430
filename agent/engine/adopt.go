package engine

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
)

// adopt leaves a plan alone that a former agent, one without this journal, has applied on this machine: the source says that it is
// applied, and the newest plan in the folder of applied plans is the same. The source alone does not do, since a machine that was made
// anew under the same name has nothing of it.
func (e *Engine) adopt(s Snapshot, r record, d decision) decision {
	checksum := s.Delivery.Checksum()
	if d.action != apply || d.resume || s.Status.State != "" || s.Status.AppliedChecksum != checksum || r.Checksum != "" || e.newestApplied() != checksum {
		return d
	}
	return decision{reason: "the plan was applied by the agent that was here before"}
}

// newestApplied is the checksum of the newest plan in the folder of applied plans; empty where there is none.
func (e *Engine) newestApplied() string {
	if e.AppliedPlanDirectory == "" {
		return ""
	}
	names, err := e.Host.ReadDir(e.AppliedPlanDirectory)
	if err != nil {
		return ""
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, historySuffix) })
	if len(names) == 0 {
		return ""
	}
	raw, err := e.Host.ReadFile(filepath.Join(e.AppliedPlanDirectory, names[len(names)-1]))
	var kept struct{ Checksum string }
	if err != nil || json.Unmarshal(raw, &kept) != nil {
		return ""
	}
	return kept.Checksum
}
