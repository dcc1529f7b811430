//go:build e2e

package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// auditDir is where a hub that runs alone writes who has asked what of which cluster.
func auditDir() string { return filepath.Join(shared.Dir, "hub", "audit") }

// checkAudit looks for what was done in the toolbox since a time, over connections that became other protocols. The hub writes of each when
// it has ended.
func checkAudit(t *testing.T, since time.Time) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(),
		"the audit log tells of the end of an exec, an attach and a portforward, by whom, with which command and how long it was",
		time.Minute, func(context.Context) (bool, string) {
			missing := missingInAudit(t, since)
			return len(missing) == 0, fmt.Sprintf("missing: %q", slices.Sorted(maps.Keys(missing)))
		}))
}

// missingInAudit is of which subresources of the toolbox the audit log does not tell since a time, with the command that should be in it.
func missingInAudit(t *testing.T, since time.Time) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(auditDir(), "audit.log"))
	suite.Must(t, err)
	missing := map[string]string{"exec": "terminal", "attach": "", "portforward": ""} // what is run, by the subresource
	for line := range bytes.Lines(raw[:bytes.LastIndexByte(raw, '\n')+1]) {
		event := &auditv1.Event{}
		suite.Must(t, json.Unmarshal(line, event))
		if event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil || event.ObjectRef.Name != "toolbox" ||
			event.User.Username != "drover-hub-admin" || event.StageTimestamp.Time.Before(since) {
			continue
		}
		command, ok := missing[event.ObjectRef.Subresource]
		complete := event.Annotations["proxy.drover.dev/duration"] != "" && event.Annotations["proxy.drover.dev/bytes-from-cluster"] != "0"
		if ok && complete && event.Annotations["proxy.drover.dev/command"] == command {
			delete(missing, event.ObjectRef.Subresource)
		}
	}
	return missing
}
