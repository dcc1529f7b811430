package secretcache

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/intern"
	"github.com/drover-dev/drover/plans"
)

// restoredVersion is by how much a restore raises the revision of the API's storage.
const restoredVersion = 1_000_000_000

var planKey = types.NamespacedName{Namespace: "ns", Name: "plan"}

func planAt(version, uid string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: planKey.Namespace, Name: planKey.Name, ResourceVersion: version, UID: types.UID(uid),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
	}}
}

// drain returns what a watcher was sent, as "TYPE version".
func drain(missed []PlanEvent, w *PlanWatcher) string {
	var out []string
	for _, event := range missed {
		out = append(out, event.Type+" "+event.Secret.ResourceVersion)
	}
	for w != nil && len(w.events) > 0 {
		event := <-w.events
		out = append(out, event.Type+" "+event.Secret.ResourceVersion)
	}
	return strings.Join(out, ", ")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPlanStoreBootstrapToken: a plan Secret is found by the hash of its machine's token, and by that of none it had before.
func TestPlanStoreBootstrapToken(t *testing.T) {
	p := NewPlanStore()
	with := func(secret *corev1.Secret, hash string) *corev1.Secret {
		secret.Annotations = map[string]string{rkev1.BootstrapTokenHashAnnotation: hash}
		return secret
	}
	found := func(hash string) string {
		var names []string
		for _, secret := range p.byBootstrapToken(hash) {
			names = append(names, secret.Name+" "+secret.ResourceVersion)
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	check := func(hash, want string) {
		t.Helper()
		if got := found(hash); got != want {
			t.Errorf("by %q: %q, want %q", hash, got, want)
		}
	}
	copied := with(planAt("6", "b"), "one")
	copied.Name = "copy"
	must(t, p.Replace([]any{with(planAt("5", "a"), "one"), copied}, "10"))
	check("one", "copy 6, plan 5")
	must(t, p.Update(with(planAt("11", "a"), "two")))
	check("one", "copy 6")
	check("two", "plan 11")
	must(t, p.Update(planAt("12", "a")))
	check("two", "")
	check("", "")
	must(t, p.Update(with(planAt("13", "a"), "two")))
	must(t, p.Delete(with(planAt("14", "a"), "two")))
	check("two", "")
	must(t, p.Replace([]any{with(planAt("3", "a"), "one")}, "4")) // a storage that was restored
	check("one", "plan 3")
	if len(p.tokens) != 1 {
		t.Errorf("the store keeps %v", p.tokens)
	}
}

func TestPlanStoreKeepsTheNewest(t *testing.T) {
	p := NewPlanStore()
	must(t, p.Replace([]any{planAt("5", "a")}, "10"))
	_, w, err := p.Watch(planKey, 10)
	must(t, err)
	// A machine's own write is seen before the reflector brings it, once.
	must(t, p.Observe(planAt("12", "a")))
	must(t, p.Update(planAt("11", "a")))
	must(t, p.Update(planAt("12", "a")))
	secret, version := p.Get(planKey)
	if secret.ResourceVersion != "12" || version != 12 || secret.ManagedFields != nil || secret.Kind != "Secret" {
		t.Errorf("got %v at %d", secret, version)
	}
	must(t, p.Delete(planAt("14", "a")))
	// An answer of the API from before the deletion must not bring the Secret back.
	must(t, p.Observe(planAt("13", "a")))
	must(t, p.Add(planAt("20", "b")))
	if diff := cmp.Diff("MODIFIED 12, DELETED 14, ADDED 20", drain(nil, w)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A report is good for as long as only that has changed which the hub notes beside it.
func TestPlanStoreUnchanged(t *testing.T) {
	p := NewPlanStore()
	must(t, p.Replace([]any{planAt("5", "a")}, "10"))
	at := func(version, uid string, data map[string][]byte) *corev1.Secret {
		secret := planAt(version, uid)
		secret.Data = data
		return secret
	}
	for _, step := range []struct {
		secret        *corev1.Secret
		good, notGood string
	}{
		{secret: planAt("12", "a"), good: "5 12", notGood: "4 13 x"},
		{secret: at("14", "a", map[string][]byte{plans.KeyAppliedPlan: []byte("{}")}), good: "5 12 14", notGood: "4 15"},
		{secret: at("15", "a", map[string][]byte{plans.KeyAgentUpgrade: []byte("{}")}), good: "5 12 14 15", notGood: "4 16"},
		{secret: at("16", "a", map[string][]byte{plans.KeyPlan: []byte("{}")}), good: "16", notGood: "5 14 15"},
		{secret: at("18", "b", map[string][]byte{plans.KeyPlan: []byte("{}")}), good: "18", notGood: "16"},
	} {
		must(t, p.Observe(step.secret))
		for _, version := range strings.Fields(step.good) {
			if !p.Unchanged(planKey, version) {
				t.Errorf("%s is changed since %s", step.secret.ResourceVersion, version)
			}
		}
		for _, version := range strings.Fields(step.notGood) {
			if p.Unchanged(planKey, version) {
				t.Errorf("%s is not changed since %s", step.secret.ResourceVersion, version)
			}
		}
	}
	must(t, p.Delete(planAt("20", "b")))
	if p.Unchanged(planKey, "18") {
		t.Error("what was deleted is unchanged")
	}
	// A restore from a backup with version 18 has raised the revision, and undone version 25. Then the hub has changed metadata.
	const before, undone, after = "18", "25", "1000000030"
	p = NewPlanStore()
	must(t, p.Replace([]any{planAt(before, "a")}, "1000000020"))
	must(t, p.Observe(planAt(after, "a")))
	if p.Unchanged(planKey, undone) {
		t.Error("a version that a restore has undone counts as unchanged")
	}
	if !p.Unchanged(planKey, after) {
		t.Error("the version after a restore is changed")
	}
}

func TestPlanStoreWatchFrom(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(*PlanStore)
		from    uint64
		want    string
		err     error
	}{
		{name: "from nothing, there", from: 0, want: "ADDED 5"},
		{name: "from nothing, not there", prepare: func(p *PlanStore) { _ = p.Delete(planAt("12", "a")) }, from: 0, want: ""},
		{name: "up to date", from: 10, want: ""},
		{name: "exactly this version", from: 5, want: ""},
		{name: "before", from: 4, want: "MODIFIED 5"},
		{name: "deleted since", prepare: func(p *PlanStore) { _ = p.Delete(planAt("12", "a")) }, from: 11, want: "DELETED 12"},
		{name: "deletion was seen", prepare: func(p *PlanStore) { _ = p.Delete(planAt("12", "a")) }, from: 12, want: ""},
		{
			name: "deleted and made again", prepare: func(p *PlanStore) { _ = p.Delete(planAt("12", "a")); _ = p.Add(planAt("13", "b")) },
			from: 11, want: "MODIFIED 13",
		},
		{name: "ahead", from: 11, err: ErrAhead},
		{name: "ahead, then the cache caught up", prepare: func(p *PlanStore) { p.UpdateResourceVersion("11") }, from: 11, want: ""},
		{name: "ahead, but of its own write", prepare: func(p *PlanStore) { _ = p.Observe(planAt("15", "a")) }, from: 15, want: ""},
		{
			name: "gone in a list", prepare: func(p *PlanStore) { _ = p.Replace(nil, "20") },
			from: 10, want: "DELETED 20",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := NewPlanStore()
			must(t, p.Replace([]any{planAt("5", "a")}, "10"))
			if tt.prepare != nil {
				tt.prepare(p)
			}
			missed, w, err := p.Watch(planKey, tt.from)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if got := drain(missed, w); got != tt.want {
				t.Errorf("missed %q, want %q", got, tt.want)
			}
		})
	}
	p := NewPlanStore()
	must(t, p.Replace(nil, "10"))
	if _, _, err := p.Watch(planKey, 9); !errors.Is(err, ErrTooOld) {
		t.Errorf("watching from before the store knows anything: %v", err)
	}
	p = NewPlanStore()
	must(t, p.Replace([]any{planAt("40", "a")}, strconv.Itoa(restoredVersion+50)))
	if _, _, err := p.Watch(planKey, 90); !errors.Is(err, ErrTooOld) {
		t.Errorf("watching from a version that a restore has undone: %v", err)
	}
}

func TestPlanStoreForgetsOldDeletions(t *testing.T) {
	p := NewPlanStore()
	must(t, p.Replace(nil, "1"))
	for i := range maxDeleted + 10 {
		gone := planAt(strconv.Itoa(100+i), "a")
		gone.Name = "plan-" + strconv.Itoa(i)
		must(t, p.Delete(gone))
	}
	if len(p.deleted) != maxDeleted || len(p.deletedOrder) != maxDeleted {
		t.Errorf("%d deletions are remembered", len(p.deleted))
	}
	if _, _, err := p.Watch(types.NamespacedName{Namespace: "ns", Name: "plan-0"}, 50); !errors.Is(err, ErrTooOld) {
		t.Errorf("watching from before a forgotten deletion: %v", err)
	}
}

func TestPlanStoreDropsSlowReaders(t *testing.T) {
	p := NewPlanStore()
	must(t, p.Replace([]any{planAt("1", "a")}, "1"))
	_, w, err := p.Watch(planKey, 1)
	must(t, err)
	for i := range watchBuffer + 2 {
		must(t, p.Update(planAt(strconv.Itoa(i+2), "a")))
	}
	for range w.events {
		// The channel must be closed after what fitted in.
	}
	p.Unwatch(w)
	if len(p.watchers) != 0 {
		t.Errorf("watchers left: %v", p.watchers)
	}
}

// TestPlanStoreAfterRestore: after a restore of the API's storage from a backup the store has what the storage has, and ends the watches of
// before.
func TestPlanStoreAfterRestore(t *testing.T) {
	const raised = restoredVersion + 50
	for _, tt := range []struct {
		name    string
		prepare func(*PlanStore)
		version uint64
	}{
		{name: "revision of the backup", version: 50},
		{name: "raised revision", version: raised},
		{name: "raised revision, deletion undone", version: raised, prepare: func(p *PlanStore) { _ = p.Delete(planAt("95", "a")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := NewPlanStore()
			must(t, p.Replace([]any{planAt("90", "a")}, "100"))
			if tt.prepare != nil {
				tt.prepare(p)
			}
			_, w, err := p.Watch(planKey, 100)
			must(t, err)
			must(t, p.Replace([]any{planAt("40", "a")}, strconv.FormatUint(tt.version, 10)))
			select {
			case event, open := <-w.events:
				if open {
					t.Errorf("a watch of before the restore gets %v", event)
				}
			default:
				t.Error("a watch of before the restore goes on")
			}
			if secret, version := p.Get(planKey); secret == nil || secret.ResourceVersion != "40" || version != tt.version {
				t.Errorf("got %v at %d", secret, version)
			}
		})
	}
}

func TestPlanStoreRefusesOtherThings(t *testing.T) {
	p := NewPlanStore()
	for _, obj := range []any{"text", &corev1.ConfigMap{}, planAt("x", "a"), planAt("", "a")} {
		if p.Add(obj) == nil || p.Delete(obj) == nil {
			t.Errorf("%v was stored", obj)
		}
	}
}

// TestPlanStoreUnderLoad lets many watch while one writes: whoever is not too slow ends with the newest version, and sees none twice or
// out of order.
func TestPlanStoreUnderLoad(t *testing.T) {
	const versions, readers = 500, 20
	p := NewPlanStore()
	must(t, p.Replace([]any{planAt("1", "a")}, "1"))
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			seen := uint64(1)
			for seen < versions {
				missed, w, err := p.Watch(planKey, seen)
				if err != nil {
					t.Error(err)
					return
				}
				next := func(event PlanEvent) {
					if event.Version <= seen {
						t.Errorf("version %d after %d", event.Version, seen)
					}
					seen = event.Version
				}
				for _, event := range missed {
					next(event)
				}
				for seen < versions {
					event, open := <-w.events
					if !open {
						break
					}
					next(event)
				}
				p.Unwatch(w)
			}
		})
	}
	for version := 2; version <= versions; version++ {
		// The reflector and a machine's own write bring the same version, in either order.
		must(t, p.Observe(planAt(strconv.Itoa(version), "a")))
		must(t, p.Update(planAt(strconv.Itoa(version), "a")))
		p.UpdateResourceVersion(strconv.Itoa(version))
	}
	wg.Wait()
}

// TestHoldsPlanOnce: the applied plan of a machine that is up to date takes no memory of its own.
func TestHoldsPlanOnce(t *testing.T) {
	p := NewPlanStore()
	secret := planAt("1", "a")
	secret.Data = map[string][]byte{plans.KeyPlan: []byte("plan"), plans.KeyAppliedPlan: []byte("plan")}
	must(t, p.Observe(secret))
	held, _ := p.Get(planKey)
	if &held.Data[plans.KeyPlan][0] != &held.Data[plans.KeyAppliedPlan][0] {
		t.Error("it is held twice")
	}
}

// TestRemovedByList: a Secret that is removed since a list does not have it is read by watchers meanwhile, and not written to: the runtime
// ends a process that writes to a map which is being read.
func TestRemovedByList(t *testing.T) {
	p := NewPlanStore()
	for version := 1; version <= 2_000; version += 2 {
		secret := planAt(strconv.Itoa(version), "1")
		secret.Data = map[string][]byte{plans.KeyPlan: []byte("plan"), plans.KeyAppliedPlan: []byte("plan")}
		must(t, p.Observe(secret))
		kept, _ := p.Get(planKey)
		reading, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := range 200 {
				if i == 20 {
					close(reading)
				}
				for range kept.Data {
				}
			}
		}()
		<-reading
		must(t, p.Replace(nil, strconv.Itoa(version+1)))
		<-done
	}
}

// TestHeldOnce: the store and another cache have the content of a Secret in memory once.
func TestHeldOnce(t *testing.T) {
	other := &corev1.Secret{Data: map[string][]byte{plans.KeyPlan: []byte("held once")}}
	intern.Object(other)
	p := NewPlanStore()
	secret := planAt("1", "1")
	secret.Data = map[string][]byte{plans.KeyPlan: []byte("held once"), plans.KeyAppliedPlan: []byte("held once")}
	must(t, p.Observe(secret))
	kept, _ := p.Get(planKey)
	for _, key := range []string{plans.KeyPlan, plans.KeyAppliedPlan} {
		if &kept.Data[key][0] != &other.Data[plans.KeyPlan][0] {
			t.Errorf("%s is in memory twice", key)
		}
	}
}
