package rkecontrolplane

import (
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// TestKnownMachines: nothing that harms a server is decided until the cache has what was there before this hub, which is listed once; and
// of a Cluster that is seen later, which another hub may have handed over, what was there when it was seen.
func TestKnownMachines(t *testing.T) {
	_, all, _ := bigCluster(t, 4)
	api, asked := apiOf(t, all)
	in := &shelf{}
	all.machines.DeepCopyInto(&in.machines)
	all.bootstraps.DeepCopyInto(&in.bootstraps)
	in.machines.Items = in.machines.Items[:3]
	var known knownMachines
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{UID: "one", ResourceVersion: "7"}}
	version := "6"
	await := func(what string, behind bool, lists int) {
		t.Helper()
		*asked = requests{}
		synctest.Test(t, func(t *testing.T) {
			err := known.await(t.Context(), api, manager{shelf: in, version: version}, controlPlaneKey, cluster)
			if behind != (err != nil) || behind && !strings.Contains(err.Error(), "the hub has not read the latest version of") {
				t.Errorf("%s: got %v, want an error: %v", what, err, behind)
			}
		})
		if len(asked.lists) != lists {
			t.Errorf("%s: %d lists, want %d", what, len(asked.lists), lists)
		}
	}
	await("without a Machine", true, 1)
	if err := api.Delete(t.Context(), all.machines.Items[3].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	in.bootstraps.Items[0].ResourceVersion = "5"
	await("with an old RKEBootstrap", true, 2)
	in.bootstraps.Items[0].ResourceVersion = "1000"
	await("with all", false, 2)
	await("again", false, 0)

	cluster.UID, in.machines.Items[0].UID = "two", "earlier"
	await("of a cluster that was handed over, with an earlier Machine", true, 1)
	in.machines.Items[0].UID = all.machines.Items[0].UID
	await("of a cluster that was handed over", false, 2)
	cluster.ResourceVersion = "9"
	await("of it again", false, 0)

	cluster.UID = "three"
	known.seen(controlPlaneKey, cluster)
	cluster.ResourceVersion, version = "10", "9"
	await("of a cluster at whose time the cache is", false, 0)
	known.forget(controlPlaneKey)
	await("of one that was deleted and made again", false, 2)
}
