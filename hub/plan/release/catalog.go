package release

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Catalog finds releases: in release data that was published after this program was built, where there is any, and in what it was built
// with. A nil Catalog knows the latter only. It may be used by many at once.
type Catalog struct {
	published atomic.Pointer[Published]
	awaited   atomic.Bool

	mu        sync.Mutex
	listeners []func()
}

// Publish replaces the release data and tells everybody who asked to be told.
func (c *Catalog) Publish(p *Published) {
	c.published.Store(p)
	c.mu.Lock()
	listeners := c.listeners
	c.mu.Unlock()
	for _, tell := range listeners {
		tell()
	}
}

// Await notes that there is release data which could not be read yet.
func (c *Catalog) Await() { c.awaited.Store(true) }

// Awaited reports whether there is release data that was never published here: what this program was built with may say something else of
// a release.
func (c *Catalog) Awaited() bool { return c != nil && c.awaited.Load() && c.published.Load() == nil }

// OnChange has a function called after every Publish. It must not block.
func (c *Catalog) OnChange(tell func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, tell)
}

// Lookup returns the release of a version. A version that nobody knows is taken for one like its nearest neighbour, and the release says
// so; only what is no version of k3s or RKE2 is an error, of type *VersionError.
func (c *Catalog) Lookup(full string) (Release, error) {
	v, err := parse(full)
	if err != nil {
		return Release{}, err
	}
	own := builtins[v.runtime]
	minor := own.nearest(v.minor)
	r := own.release(full, v, minor)
	var p *Published
	if c != nil {
		p = c.published.Load()
	}
	entry, exact := p.nearest(v)
	// The nearer neighbour counts; what this program was built with knows minors, what is published single releases.
	fits := entry != nil && (exact || distance(entry.version.minor, v.minor) <= distance(minor, v.minor))
	if fits {
		entry.addTo(&r)
	}
	switch {
	case exact:
	case fits:
		r.Assumed = fmt.Sprintf("is not in the release data; it is taken for a release like %s", entry.Version)
	case minor != v.minor:
		r.Assumed = fmt.Sprintf("is of a minor that this hub does not know; it is taken for a release like those of v1.%d", minor)
	case p.knows(v.runtime):
		r.Assumed = fmt.Sprintf("is not in the release data; it is taken for a release like others of v1.%d", minor)
	}
	return r, nil
}

// Versions are the releases in the data that was published, k3s before RKE2, each oldest first. What this program was built with knows
// minors and no single releases; see Minors.
func (c *Catalog) Versions() []string {
	if c == nil {
		return nil
	}
	p := c.published.Load()
	if p == nil {
		return nil
	}
	var versions []string
	for _, runtime := range []string{K3s, RKE2} {
		for _, r := range p.releases[runtime] {
			versions = append(versions, r.Version)
		}
	}
	return versions
}

// Minors are the first and the last Kubernetes minor of a runtime that this program was built with, 36 for v1.36.
func Minors(runtime string) (first, last int) {
	minors := builtins[runtime].Minors
	return minors.First, minors.Last
}

func distance(a, b int) int {
	return max(a-b, b-a)
}
