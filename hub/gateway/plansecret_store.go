package gateway

import (
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// planStore holds all plan Secrets in their newest version and tells watchers of changes. A reflector fills it, and so does whoever
// has got a newer version from the API: a machine that reads after it wrote finds what it wrote.
//
// Objects in it are never changed; whoever wants another one makes a copy.
type planStore struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]stored
	gone    map[types.NamespacedName]stored
	// goneOrder has the keys of gone in the order of deletion, oldest first.
	goneOrder []types.NamespacedName
	watchers  map[types.NamespacedName]map[*planWatcher]struct{}

	// latest is the newest resourceVersion that the store knows to have seen everything up to.
	latest uint64
	// since is the resourceVersion from which on no deletion is forgotten.
	since  uint64
	filled bool
	// advanced is closed and replaced whenever latest grows.
	advanced chan struct{}
}

// stored is a Secret, and its resourceVersion as a number, or that of its deletion.
type stored struct {
	secret  *corev1.Secret
	version uint64
}

// maxGone is how many deletions are remembered for watches that continue from before.
const maxGone = 1024

func newPlanStore() *planStore {
	return &planStore{
		objects:  map[types.NamespacedName]stored{},
		gone:     map[types.NamespacedName]stored{},
		watchers: map[types.NamespacedName]map[*planWatcher]struct{}{},
		advanced: make(chan struct{}),
	}
}

// The interface of the reflector.

func (p *planStore) Add(obj any) error    { return p.observe(obj) }
func (p *planStore) Update(obj any) error { return p.observe(obj) }
func (p *planStore) Resync() error        { return nil }

func (p *planStore) Delete(obj any) error {
	secret, version, err := secretAndVersion(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}, secret, version)
	p.advance(version)
	return nil
}

// Replace makes the store hold what was listed.
func (p *planStore) Replace(list []any, resourceVersion string) error {
	version, err := parseVersion(resourceVersion)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if version < p.latest {
		// The API's storage went back in time, as after a restore: nothing that was remembered is comparable.
		p.forget()
	}
	listed := map[types.NamespacedName]bool{}
	for _, obj := range list {
		secret, itemVersion, err := secretAndVersion(obj)
		if err != nil {
			return err
		}
		key := types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}
		listed[key] = true
		p.put(key, secret, itemVersion)
	}
	for key, old := range p.objects {
		if !listed[key] && old.version <= version {
			p.remove(key, old.secret, version)
		}
	}
	if !p.filled {
		p.filled, p.since = true, version
	}
	p.advance(version)
	return nil
}

// UpdateResourceVersion tells how far the reflector has seen everything.
func (p *planStore) UpdateResourceVersion(resourceVersion string) {
	if version, err := parseVersion(resourceVersion); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.advance(version)
	}
}

func (p *planStore) synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filled
}

// observe stores a version of a Secret unless a newer one, or a newer deletion, is known.
func (p *planStore) observe(obj any) error {
	secret, version, err := secretAndVersion(obj)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}, secret, version)
	return nil
}

// put and everything below expects the lock to be held.
func (p *planStore) put(key types.NamespacedName, secret *corev1.Secret, version uint64) {
	old, exists := p.objects[key]
	if exists && old.version >= version || p.gone[key].version >= version {
		return
	}
	kept := *secret
	// Managed fields are of no use to machines, and often larger than the rest.
	kept.ManagedFields = nil
	kept.APIVersion, kept.Kind = "v1", "Secret"
	p.objects[key] = stored{&kept, version}
	event := planEvent{Type: "ADDED", Secret: &kept, Version: version}
	if exists && old.secret.UID == kept.UID {
		event.Type = "MODIFIED"
	} else if exists {
		// It was deleted and made again unseen: a watcher that knows it by its UID must hear of both.
		p.tell(key, planEvent{Type: "DELETED", Secret: old.secret, Version: version})
	}
	p.tell(key, event)
}

func (p *planStore) remove(key types.NamespacedName, last *corev1.Secret, version uint64) {
	old, exists := p.objects[key]
	if exists && old.version > version {
		return
	}
	delete(p.objects, key)
	if p.gone[key].version >= version {
		return
	}
	deleted := *last
	deleted.ManagedFields = nil
	deleted.APIVersion, deleted.Kind = "v1", "Secret"
	deleted.ResourceVersion = strconv.FormatUint(version, 10)
	if _, again := p.gone[key]; !again {
		p.goneOrder = append(p.goneOrder, key)
	}
	p.gone[key] = stored{&deleted, version}
	if len(p.goneOrder) > maxGone {
		oldest := p.goneOrder[0]
		p.goneOrder = p.goneOrder[1:]
		p.since = max(p.since, p.gone[oldest].version)
		delete(p.gone, oldest)
	}
	if exists {
		p.tell(key, planEvent{Type: "DELETED", Secret: &deleted, Version: version})
	}
}

// forget drops everything, watchers included: they come again and list.
func (p *planStore) forget() {
	for _, watchers := range p.watchers {
		for w := range watchers {
			p.drop(w)
		}
	}
	clear(p.objects)
	clear(p.gone)
	p.goneOrder, p.latest, p.since, p.filled = nil, 0, 0, false
}

func (p *planStore) advance(version uint64) {
	if version > p.latest {
		p.latest = version
		close(p.advanced)
		p.advanced = make(chan struct{})
	}
}

// get returns the Secret, or nil, and the resourceVersion up to which the store has seen everything.
func (p *planStore) get(key types.NamespacedName) (*corev1.Secret, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.objects[key]
	return found.secret, max(p.latest, found.version)
}

// progress returns a channel that is closed when the store has seen more.
func (p *planStore) progress() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.advanced
}

func secretAndVersion(obj any) (*corev1.Secret, uint64, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, 0, fmt.Errorf("storing %T as a plan Secret", obj)
	}
	version, err := parseVersion(secret.ResourceVersion)
	return secret, version, err
}

func parseVersion(resourceVersion string) (uint64, error) {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading resource version %q: not a number", resourceVersion)
	}
	return version, nil
}
