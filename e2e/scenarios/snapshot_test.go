//go:build e2e

package scenarios

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// saveSnapshot asks for a snapshot by the generation in the Cluster, and finds it as an ETCDSnapshot and as a file on the machine.
func saveSnapshot(t *testing.T, host *hosts.Host, key client.ObjectKey) {
	ctx := t.Context()
	cluster := &provisioningv1.Cluster{}
	suite.Must(t, shared.Hub.Get(ctx, key, cluster))
	base := cluster.DeepCopy()
	cluster.Spec.RKEConfig.ETCDSnapshotCreate = &rkev1.ETCDSnapshotCreate{Generation: 1}
	suite.Must(t, shared.Hub.Patch(ctx, cluster, client.MergeFrom(base)))
	suite.Must(t, shared.WaitFor(ctx, "the snapshot is saved", 3*time.Minute, func(ctx context.Context) (bool, string) {
		op := &operationv1.ETCDSnapshotSave{}
		if err := shared.Hub.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name + "-snapshot-1"}, op); err != nil {
			return false, err.Error()
		}
		if op.Status.Phase.Ended() && op.Status.Phase != operationv1.PhaseSucceeded {
			t.Fatalf("it has ended: %+v", op.Status)
		}
		return op.Status.Phase == operationv1.PhaseSucceeded, string(op.Status.Phase)
	}))
	suite.Must(t, shared.WaitFor(ctx, "the snapshot is listed", time.Minute, func(ctx context.Context) (bool, string) {
		list := &rkev1.ETCDSnapshotList{}
		if err := shared.Hub.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{rkev1.ClusterNameLabel: key.Name}); err != nil {
			return false, err.Error()
		}
		for i := range list.Items {
			file := &list.Items[i].SnapshotFile
			if !strings.HasPrefix(file.Name, "on-demand") {
				continue
			}
			t.Logf("%s, %d bytes, at %s", file.Name, file.Size, file.Location)
			result, err := host.Exec(ctx, "stat", "-c", "%s", strings.TrimPrefix(file.Location, "file://"))
			suite.Must(t, err)
			if size := strings.TrimSpace(string(result.Stdout)); size != strconv.FormatInt(file.Size, 10) || file.Status != "successful" ||
				file.Metadata == "" {
				t.Errorf("the file has %s bytes; listed: %+v", size, file)
			}
			return true, ""
		}
		return false, fmt.Sprintf("%d are listed", len(list.Items))
	}))
}
