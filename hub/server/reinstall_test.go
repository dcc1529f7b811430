package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// metadataInformers finds informers by the kind of the metadata that they are for.
type metadataInformers struct{ *informertest.FakeInformers }

func (f metadataInformers) GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	return f.GetInformerForKind(ctx, object.GetObjectKind().GroupVersionKind(), opts...)
}

// TestReinstall: what the hub has installed is installed again when it was deleted, also where that fails at first, and what others have
// installed is not the hub's concern.
func TestReinstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informers := metadataInformers{&informertest.FakeInformers{}}
		kinds := metadataOf("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
		policy, binding := kinds[0], kinds[1]
		installed := 0
		var fails error
		r := &reinstall{informers: informers, what: "policies", kinds: kinds, names: []string{"ours"},
			install: func(context.Context) error {
				installed++
				return fails
			}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Start(ctx) }()
		synctest.Wait()
		remove := func(kind *metav1.PartialObjectMetadata, name string) {
			t.Helper()
			informer, err := informers.FakeInformerForKind(ctx, kind.GroupVersionKind())
			if err != nil {
				t.Fatal(err)
			}
			informer.Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
			synctest.Wait()
		}
		for _, step := range []struct {
			what string
			do   func()
			want int
		}{
			{"a start", func() {}, 0},
			{"a policy of somebody else", func() { remove(policy, "theirs") }, 0},
			{"a policy", func() { remove(policy, "ours") }, 1},
			{"a binding, right after it", func() { remove(binding, "ours"); time.Sleep(2 * time.Second); synctest.Wait() }, 1},
			{"a failure", func() { time.Sleep(time.Hour); fails = errors.New("refused"); remove(policy, "ours") }, 1},
			{"the retry after it", func() { fails = nil; time.Sleep(maxReinstallPause); synctest.Wait() }, 1},
			{"the time after that", func() { time.Sleep(time.Hour); synctest.Wait() }, 0},
			{"a policy that somebody deletes every ten seconds", func() {
				for range 20 {
					remove(policy, "ours")
					time.Sleep(10 * time.Second)
				}
				synctest.Wait()
			}, 8},
		} {
			installed = 0
			if step.do(); installed != step.want {
				t.Errorf("%s: installed %d times, want %d", step.what, installed, step.want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
