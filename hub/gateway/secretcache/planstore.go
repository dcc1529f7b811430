package secretcache

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/intern"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/plans"
)

// PlanStore holds all plan Secrets in their newest version and sends changes to watchers. A reflector fills it; Observe adds versions
// that the gateway got from the API itself, so that a machine that reads after its own write finds what it wrote.
//
// Objects in it are never changed; whoever wants another one makes a copy.
type PlanStore struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]stored
	// deleted are the Secrets that were deleted last, without content, for watches that continue from before, and deletedOrder their keys,
	// oldest first.
	deleted      map[types.NamespacedName]stored
	deletedOrder []types.NamespacedName
	watchers     map[types.NamespacedName]map[*PlanWatcher]struct{}
	// tokens has the keys of objects by the hash of their machine's bootstrap token.
	tokens map[string]map[types.NamespacedName]struct{}
	// latest is the newest resourceVersion up to which the store has seen everything.
	latest uint64
	// completeSince is the resourceVersion from which on all deletions are known.
	completeSince uint64
	filled        bool
	// advanced is closed and replaced whenever latest grows.
	advanced chan struct{}
}

// stored is a Secret with its resourceVersion as a number, or that of its deletion.
type stored struct {
	secret  *corev1.Secret
	version uint64
	// since is the version from which on nothing has changed that a machine's report is about.
	since uint64
}

// maxDeleted is how many deletions are kept.
const maxDeleted = 1024

// NewPlanStore returns an empty PlanStore.
func NewPlanStore() *PlanStore {
	return &PlanStore{
		objects:  map[types.NamespacedName]stored{},
		deleted:  map[types.NamespacedName]stored{},
		watchers: map[types.NamespacedName]map[*PlanWatcher]struct{}{},
		tokens:   map[string]map[types.NamespacedName]struct{}{},
		advanced: make(chan struct{}),
	}
}

// The interface of the reflector.

func (p *PlanStore) Add(obj any) error    { return p.Observe(obj) }
func (p *PlanStore) Update(obj any) error { return p.Observe(obj) }
func (p *PlanStore) Resync() error        { return nil }

func (p *PlanStore) Delete(obj any) error {
	secret, version, err := secretAndVersion(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(keyOf(secret), secret, version)
	p.advance(version)
	return nil
}

// Replace implements cache.ReflectorStore: the store then holds what was listed at resourceVersion.
func (p *PlanStore) Replace(list []any, resourceVersion string) error {
	version, err := ParseVersion(resourceVersion)
	if err != nil {
		return err
	}
	listed := make(map[types.NamespacedName]stored, len(list))
	for _, obj := range list {
		secret, itemVersion, err := secretAndVersion(obj)
		if err != nil {
			return err
		}
		listed[keyOf(secret)] = stored{secret: secret, version: itemVersion}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if version < p.latest || p.contradicts(listed, version) {
		// The API's storage was restored from a backup: versions from before cannot be compared with those after.
		p.reset()
	}
	for key, item := range listed {
		p.put(key, item.secret, item.version)
	}
	for key, old := range p.objects {
		if _, found := listed[key]; !found && old.version <= version {
			p.remove(key, old.secret, version)
		}
	}
	if !p.filled {
		p.filled, p.completeSince = true, version
	}
	p.advance(version)
	return nil
}

// contradicts reports whether a list at version has a Secret as it was before a change or a deletion that the store knows and that the list
// should include. It does after a restore that has raised the storage's revision, which undoes changes while versions go on.
func (p *PlanStore) contradicts(listed map[types.NamespacedName]stored, version uint64) bool {
	undone := func(known, item stored) bool { return item.version < known.version && known.version <= version }
	for key, item := range listed {
		if undone(p.objects[key], item) || undone(p.deleted[key], item) {
			return true
		}
	}
	return false
}

// UpdateResourceVersion implements cache.ResourceVersionUpdater: the reflector has seen everything up to resourceVersion.
func (p *PlanStore) UpdateResourceVersion(resourceVersion string) {
	if version, err := ParseVersion(resourceVersion); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.advance(version)
	}
}

// Synced reports whether the Secrets have been listed.
func (p *PlanStore) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filled
}

// Seen reports whether the store has seen everything up to a resourceVersion.
func (p *PlanStore) Seen(version uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest >= version
}

// Observe stores a version of a Secret (*corev1.Secret) unless a newer one, or a newer deletion, is known.
func (p *PlanStore) Observe(obj any) error {
	secret, version, err := secretAndVersion(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(keyOf(secret), secret, version)
	return nil
}

// put and everything below expects the lock to be held.
func (p *PlanStore) put(key types.NamespacedName, secret *corev1.Secret, version uint64) {
	old, exists := p.objects[key]
	if exists && old.version >= version || p.deleted[key].version >= version {
		return
	}
	kept := forMachines(secret)
	intern.Object(kept)
	plansecrets.HoldOnce(kept)
	since := version
	if exists && sameForReport(old.secret, kept) {
		since = old.since
	}
	p.index(key, old.secret, kept)
	p.objects[key] = stored{kept, version, since}
	event := PlanEvent{Type: "ADDED", Secret: kept, Version: version}
	if exists && old.secret.UID == kept.UID {
		event.Type = "MODIFIED"
	} else if exists {
		// The Secret was deleted and created again unseen: a watcher that knows it by its UID needs both events.
		p.send(key, PlanEvent{Type: "DELETED", Secret: old.secret, Version: version})
	}
	p.send(key, event)
}

func (p *PlanStore) remove(key types.NamespacedName, last *corev1.Secret, version uint64) {
	old, exists := p.objects[key]
	if exists && old.version > version {
		return
	}
	p.index(key, old.secret, nil)
	delete(p.objects, key)
	if p.deleted[key].version >= version {
		return
	}
	final := forMachines(last)
	final.ResourceVersion = strconv.FormatUint(version, 10)
	// The content is a plan twice and a report, and holds secrets of the cluster: it is sent once, and not kept.
	remembered := *final
	remembered.Data = nil
	if _, again := p.deleted[key]; !again {
		p.deletedOrder = append(p.deletedOrder, key)
	}
	p.deleted[key] = stored{secret: &remembered, version: version}
	if len(p.deletedOrder) > maxDeleted {
		oldest := p.deletedOrder[0]
		p.deletedOrder = p.deletedOrder[1:]
		p.completeSince = max(p.completeSince, p.deleted[oldest].version)
		delete(p.deleted, oldest)
	}
	if exists {
		p.send(key, PlanEvent{Type: "DELETED", Secret: final, Version: version})
	}
}

// reset drops everything, watchers included: they reconnect and list.
func (p *PlanStore) reset() {
	for _, watchers := range p.watchers {
		for w := range watchers {
			p.drop(w)
		}
	}
	clear(p.objects)
	clear(p.tokens)
	clear(p.deleted)
	p.deletedOrder, p.latest, p.completeSince, p.filled = nil, 0, 0, false
}

func (p *PlanStore) advance(version uint64) {
	if version > p.latest {
		p.latest = version
		close(p.advanced)
		p.advanced = make(chan struct{})
	}
}

// index replaces one Secret, which may be nil, by another in tokens.
func (p *PlanStore) index(key types.NamespacedName, before, after *corev1.Secret) {
	from, to := bootstrapTokenHash(before), bootstrapTokenHash(after)
	if from == to {
		return
	}
	if delete(p.tokens[from], key); len(p.tokens[from]) == 0 {
		delete(p.tokens, from)
	}
	if to == "" {
		return
	}
	if p.tokens[to] == nil {
		p.tokens[to] = map[types.NamespacedName]struct{}{}
	}
	p.tokens[to][key] = struct{}{}
}

func bootstrapTokenHash(secret *corev1.Secret) string {
	if secret == nil {
		return ""
	}
	return secret.Annotations[rkev1.BootstrapTokenHashAnnotation]
}

// byBootstrapToken returns the Secrets with the hash of a bootstrap token.
func (p *PlanStore) byBootstrapToken(hash string) []*corev1.Secret {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*corev1.Secret
	for key := range p.tokens[hash] {
		found = append(found, p.objects[key].secret)
	}
	return found
}

// Get returns the Secret, or nil, and the resourceVersion up to which the store has seen everything.
func (p *PlanStore) Get(key types.NamespacedName) (*corev1.Secret, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.objects[key]
	return found.secret, max(p.latest, found.version)
}

// Unchanged reports whether only metadata, the applied plan and the upgrade of the agent have changed since a version of a Secret: what the
// hub alone writes, and no report of a machine contains. A version that is too far behind may be one that a restore has undone
// (maxVersionsBehind), and counts as changed.
func (p *PlanStore) Unchanged(key types.NamespacedName, since string) bool {
	version, err := ParseVersion(since)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found, exists := p.objects[key]
	return exists && found.since <= version && version <= found.version && found.version-version <= maxVersionsBehind
}

// sameForReport compares what a machine makes its report from, and what it reports.
func sameForReport(a, b *corev1.Secret) bool {
	return a.UID == b.UID && a.Type == b.Type && ptr.Deref(a.Immutable, false) == ptr.Deref(b.Immutable, false) &&
		maps.EqualFunc(reported(a), reported(b), bytes.Equal)
}

func reported(secret *corev1.Secret) map[string][]byte {
	data := maps.Clone(secret.Data)
	delete(data, plans.KeyAppliedPlan)
	delete(data, plans.KeyAgentUpgrade)
	return data
}

// Progress returns a channel that is closed when the store has seen more.
func (p *PlanStore) Progress() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.advanced
}

// forMachines is a copy of a Secret as machines get it: managed fields are of no use to them, and often larger than the rest. It must keep
// all else, since the gateway writes it back with a machine's report; the API server keeps managed fields that an update does not have.
// The data are those of the Secret, which others may be reading.
func forMachines(secret *corev1.Secret) *corev1.Secret {
	out := *secret
	out.ManagedFields = nil
	out.APIVersion, out.Kind = "v1", "Secret"
	return &out
}

func secretAndVersion(obj any) (*corev1.Secret, uint64, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, 0, fmt.Errorf("storing %T as a plan Secret", obj)
	}
	version, err := ParseVersion(secret.ResourceVersion)
	return secret, version, err
}

// ParseVersion reads a resourceVersion as the number that etcd counts.
func ParseVersion(resourceVersion string) (uint64, error) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading resource version %q: not a number", resourceVersion)
	}
	return version, nil
}
