package rkecontrolplane

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
			_, err := known.await(t.Context(), api, manager{shelf: in, version: version}, controlPlaneKey, cluster)
			if behind != (err != nil) || behind && !strings.Contains(err.Error(), "the hub has not read the latest version of") {
				t.Errorf("%s: got %v, want an error: %v", what, err, behind)
			}
		})
		if len(asked.lists) != lists {
			t.Errorf("%s: %d lists, want %d", what, len(asked.lists), lists)
		}
	}
	await("without a Machine", true, 2)
	if err := api.Delete(t.Context(), all.machines.Items[3].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	in.bootstraps.Items[0].ResourceVersion = "5"
	await("with an old RKEBootstrap", true, 2)
	in.bootstraps.Items[0].ResourceVersion = "1000"
	await("with all", false, 2)
	await("again", false, 0)

	cluster.UID, in.machines.Items[0].UID = "two", "earlier"
	await("of a cluster that was handed over, with an earlier Machine", true, 2)
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

// slowLists is an API server that takes a second for a list.
type slowLists struct {
	client.WithWatch
	lists int
}

func (s *slowLists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	s.lists++
	time.Sleep(time.Second)
	return s.WithWatch.List(ctx, list, opts...)
}

// TestBusyHubListsRarely: where lists take long and the cache is behind, new clusters wait for the cache instead of listing each: with
// hundreds of clusters the lists took a quarter of the processor, and kept the cache behind.
func TestBusyHubListsRarely(t *testing.T) {
	_, all, _ := bigCluster(t, 4)
	api, _ := apiOf(t, all)
	in := &shelf{}
	all.machines.DeepCopyInto(&in.machines)
	all.bootstraps.DeepCopyInto(&in.bootstraps)
	synctest.Test(t, func(t *testing.T) {
		var known knownMachines
		slow, version := &slowLists{WithWatch: api}, "6"
		await := func(name string, wantWait time.Duration, lists int) {
			t.Helper()
			slow.lists = 0
			key := client.ObjectKey{Namespace: controlPlaneKey.Namespace, Name: name}
			cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name), ResourceVersion: "7"}}
			wait, err := known.await(t.Context(), slow, manager{shelf: in, version: version}, key, cluster)
			if wait != wantWait || err != nil || slow.lists != lists {
				t.Errorf("%s: wait %s, %d lists, %v; want %s, %d", name, wait, slow.lists, err, wantWait, lists)
			}
		}
		await("first", 0, 2)
		await("second", maxListWait, 0)
		time.Sleep(17 * time.Second)
		await("second", time.Second, 0)
		time.Sleep(time.Second)
		await("second", 0, 2)
		await("first", 0, 0)
		await("third", maxListWait, 0)
		version = "7"
		await("third", 0, 0)
	})
}
