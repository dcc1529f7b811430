//go:build e2e && full

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestRestoreFaults has everything go wrong that a snapshot and its restore can meet on a machine: full disks, damaged files, a restore
// that is canceled in one step after the other, and an agent that is killed in each.
func TestRestoreFaults(t *testing.T) { restoreFaults(t, lab.K3s, "faults") }

// TestRestoreFaultsRKE2 does so with a cluster of RKE2.
func TestRestoreFaultsRKE2(t *testing.T) {
	suite.Must(t, shared.Release(t.Context(), lab.RKE2.Version))
	restoreFaults(t, lab.RKE2, "faultsr")
}

func restoreFaults(t *testing.T, d lab.Distribution, name string) {
	ctx := t.Context()
	c := faultyCluster{key: client.ObjectKey{Namespace: "fleet-default", Name: name}, d: d, host: shared.NewHost(t, name)}
	shared.MakeNamespace(t, c.key.Namespace)
	suite.Step(t, "a machine whose data has a file system of its own makes a cluster", func(t *testing.T) {
		c.run(t, "mkdir -p /var/lib/rancher && mount -t tmpfs -o mode=0755,size=4g tmpfs /var/lib/rancher")
		suite.Must(t, shared.ApplyClusterVersion(ctx, shared.Hub, c.key, d.Version))
		command, _, err := shared.TokenCommand(ctx, shared.Hub, c.key, lab.AllRoles...)
		suite.Must(t, err)
		suite.Must(t, shared.Register(ctx, c.host, command))
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 10*time.Minute))
		writeData(t, c.key, "kept", "before the snapshot")
	})
	suite.Step(t, "a snapshot that finds no space fails, and the cluster goes on", func(t *testing.T) {
		folder := d.DataDir() + "/server/db/snapshots"
		c.run(t, "mkdir -p "+folder+" && mount -t tmpfs -o mode=0700,size=64k tmpfs "+folder)
		full := c.save(t, "full")
		if shared.WaitOperationEnd(t, full, nil) != operationv1.PhaseFailed || !strings.Contains(text(t, full), "no space left") {
			t.Errorf("it has ended: %s", text(t, full))
		}
		c.run(t, "umount "+folder)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 5*time.Minute))
	})
	suite.Step(t, "with space it is saved", func(t *testing.T) {
		shared.WaitOperation(t, c.save(t, "saved"), nil)
		c.awaitSnapshot(t)
		writeData(t, c.key, "new", "after the snapshot")
	})
	suite.Step(t, "what cannot be restored is refused before anything is stopped", c.refused)
	suite.Step(t, "a restore is canceled in one step after the other", c.canceled)
	suite.Step(t, "the agent is killed in each step, and the data comes back", func(t *testing.T) {
		op, killed := c.restore(t, "agent-killed"), []string(nil)
		shared.WaitOperation(t, op, func(step string) {
			killed = append(killed, step)
			c.run(t, "systemctl kill --kill-whom=main --signal=SIGKILL rancher-system-agent")
		})
		if len(killed) < 4 {
			t.Errorf("seen and killed in the steps %s alone", killed)
		}
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 10*time.Minute))
		if kept, lost := readData(t, c.key, "kept"), readData(t, c.key, "new"); kept != "before the snapshot" || lost != "not found" {
			t.Errorf("what was written before the snapshot is %q, what was written after it %q", kept, lost)
		}
	})
	suite.Step(t, "the Cluster is deleted", func(t *testing.T) { shared.DeleteCluster(t, c.key) })
}

// faultyCluster is a cluster of one machine.
type faultyCluster struct {
	key      client.ObjectKey
	d        lab.Distribution
	host     *hosts.Host
	snapshot rkev1.ETCDSnapshot
}

// run runs a shell command on the machine and returns what it prints.
func (c *faultyCluster) run(t *testing.T, command string) string {
	t.Helper()
	result, err := c.host.Exec(t.Context(), "sh", "-c", command)
	suite.Must(t, err)
	if result.ExitCode != 0 {
		t.Fatalf("%s ended with %d: %s", command, result.ExitCode, result.Stderr)
	}
	return strings.TrimSpace(result.Stdout)
}

func (c *faultyCluster) save(t *testing.T, name string) *operationv1.ETCDSnapshotSave {
	t.Helper()
	op := &operationv1.ETCDSnapshotSave{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name + "-" + name}}
	op.Spec.Spec = suite.OperationSpec(c.key)
	suite.Must(t, shared.Hub.Create(t.Context(), op))
	return op
}

// awaitSnapshot finds the snapshot that was saved last.
func (c *faultyCluster) awaitSnapshot(t *testing.T) {
	t.Helper()
	suite.Must(t, shared.WaitFor(t.Context(), "the snapshot is listed", 3*time.Minute, func(ctx context.Context) (bool, string) {
		list := &rkev1.ETCDSnapshotList{}
		if err := shared.Hub.List(ctx, list, client.InNamespace(c.key.Namespace),
			client.MatchingLabels{rkev1.ClusterNameLabel: c.key.Name}); err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(list.Items, func(s rkev1.ETCDSnapshot) bool {
			return s.SnapshotFile.Status == "successful" && !s.Status.Missing && s.Annotations[rkev1.SnapshotSHA256Annotation] != ""
		})
		if i >= 0 {
			c.snapshot = list.Items[i]
		}
		return i >= 0, fmt.Sprintf("%d are listed", len(list.Items))
	}))
}

func (c *faultyCluster) restore(t *testing.T, name string) *operationv1.ETCDSnapshotRestore {
	t.Helper()
	op := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Namespace: c.key.Namespace, Name: c.key.Name + "-" + name}}
	op.Spec.Spec, op.Spec.Args.Name = suite.OperationSpec(c.key), c.snapshot.Name
	suite.Must(t, shared.Hub.Create(t.Context(), op))
	return op
}

// text is the status of an operation.
func text(t *testing.T, op operationv1.Operation) string {
	t.Helper()
	raw, err := json.Marshal(op.CommonStatus())
	suite.Must(t, err)
	return string(raw)
}

// refused restores files that are damaged, and onto a disk that is full.
func (c *faultyCluster) refused(t *testing.T) {
	ctx := t.Context()
	file := strings.TrimPrefix(c.snapshot.SnapshotFile.Location, "file://")
	started := "systemctl show --property=ActiveEnterTimestampMonotonic " + c.d.ServerUnit
	before := c.run(t, started)
	c.run(t, "cp "+file+" /root/good")
	for _, fault := range []struct{ name, inject, undo, want string }{
		{"damaged", "printf damaged | dd of=" + file + " bs=1 seek=9000 conv=notrunc", "cp /root/good " + file, "is damaged"},
		{"truncated", "truncate -s 9000 " + file, "cp /root/good " + file, "has 9000 bytes instead of"},
		{"empty", ": >" + file, "cp /root/good " + file, "is empty"},
		{"gone", "rm " + file, "cp /root/good " + file, "does not exist"},
		{"disk-full", `mount -o remount,size="$(($(df -k --output=used /var/lib/rancher | tail -n 1) + 40960))k" /var/lib/rancher`,
			"mount -o remount,size=4g /var/lib/rancher", "the restore needs about"},
	} {
		c.run(t, fault.inject)
		op := c.restore(t, fault.name)
		if shared.WaitOperationEnd(t, op, nil) != operationv1.PhaseFailed || !strings.Contains(text(t, op), fault.want) {
			t.Errorf("%s: it has ended: %s", fault.name, text(t, op))
		}
		c.run(t, fault.undo)
		suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 5*time.Minute))
	}
	if after := c.run(t, started); after != before {
		t.Errorf("%s has started again: %s, before %s", c.d.ServerUnit, after, before)
	}
	if got := readData(t, c.key, "new"); got != "after the snapshot" {
		t.Errorf("what was written after the snapshot is %q", got)
	}
}

// canceled cancels restores. One that has stopped the machine leaves it so, and the control plane says what to do.
func (c *faultyCluster) canceled(t *testing.T) {
	ctx := t.Context()
	steps := []string{operationv1.StepPreflight, operationv1.StepShutdown, operationv1.StepRestore}
	for i, at := range steps {
		op, last := c.restore(t, "canceled-in-"+strings.ToLower(at)), ""
		phase := shared.WaitOperationEnd(t, op, func(step string) {
			if last = step; !slices.Contains(steps[:i], step) { // it may have been over too soon to be seen
				suite.Must(t, shared.Hub.Patch(ctx, op.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cancel":true}}`))))
			}
		})
		if phase != operationv1.PhaseCanceled {
			t.Fatalf("canceled in %s, it has ended: %s", at, text(t, op))
		}
		t.Logf("canceled in %s, ended in %s", at, last)
		if last == operationv1.StepPreflight {
			suite.Must(t, shared.WaitClusterReady(ctx, shared.Hub, c.key, 5*time.Minute))
			continue
		}
		suite.Must(t, shared.WaitFor(ctx, "the control plane says that the restore is not complete", 3*time.Minute,
			func(ctx context.Context) (bool, string) {
				plane := &rkev1.RKEControlPlane{}
				if err := shared.Hub.Get(ctx, c.key, plane); err != nil {
					return false, err.Error()
				}
				reason := conditions.GetReason(plane, rkev1.ReadyCondition)
				return reason == "RestoreFailed", reason
			}))
	}
}
