package image

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/drover-dev/drover/agent/host"
)

const (
	indexName  = "index.json"
	partSuffix = ".part"
	// maxParts is how long a download that broke off is kept for going on.
	maxPartAge = 24 * time.Hour
)

// Retention tells what of the store is kept.
type Retention struct {
	// Images is of how many images, the last that were used, the content is kept.
	Images int
	// Bytes is how much all of them may take.
	Bytes int64
	// Age is how long an image is kept that nobody uses.
	Age time.Duration
}

// DefaultRetention keeps what an attempt that is made again needs, and the image before it.
var DefaultRetention = Retention{Images: 2, Bytes: 8 << 30, Age: 30 * 24 * time.Hour}

// index is what the store knows of its files.
type index struct {
	// Images are those that were used, in no order.
	Images []record `json:"images"`
	// Parts are downloads that are not complete, and when they were last tried.
	Parts map[string]time.Time `json:"parts,omitempty"`
}

// record is one image that was used.
type record struct {
	// Image is the reference that was asked for.
	Image string `json:"image"`
	// Manifest is what the reference stood for.
	Manifest v1.Hash `json:"manifest"`
	// Files are the names of all files of the store that it needs, manifests included.
	Files []string  `json:"files"`
	Used  time.Time `json:"used"`
}

// decodeIndex reads an index; what cannot be understood makes all of it worthless.
func decodeIndex(raw []byte) (index, error) {
	var i index
	if err := json.Unmarshal(raw, &i); err != nil {
		return index{}, fmt.Errorf("decoding the index of the image store: %w", err)
	}
	return i, nil
}

// cache is the files of the store: blobs and manifests by their digest, and the index.
type cache struct {
	options *Options

	mu sync.Mutex
	// pinned counts who uses a file now.
	pinned map[string]int
}

// fileName is the name of what has a digest.
func fileName(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex }

func (c *cache) path(name string) string { return filepath.Join(c.options.CacheDirectory, name) }

// pin keeps files, whether they are there yet or not, until the returned function is called.
func (c *cache) pin(names ...string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		c.pinned[name]++
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range names {
			if c.pinned[name]--; c.pinned[name] == 0 {
				delete(c.pinned, name)
			}
		}
	})
}

// load needs the lock.
func (c *cache) load() index {
	raw, err := c.options.Host.ReadFile(c.path(indexName))
	if errors.Is(err, fs.ErrNotExist) {
		return index{}
	}
	var i index
	if err == nil {
		i, err = decodeIndex(raw)
	}
	if err != nil {
		c.options.Log.Warn("The index of the image store cannot be read", "error", err)
	}
	return i
}

// change changes the index. That it cannot be written only costs fetching again.
func (c *cache) change(change func(*index)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.load()
	change(&i)
	raw, err := json.Marshal(i)
	if err == nil {
		err = c.options.Host.WriteFile(c.path(indexName), raw, host.Private(0o600))
	}
	if err != nil {
		c.options.Log.Warn("The index of the image store cannot be written", "error", err)
	}
}

// known is what a reference stood for when it was last used.
func (c *cache) known(image string) (v1.Hash, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.load().Images {
		if r.Image == image {
			return r.Manifest, true
		}
	}
	return v1.Hash{}, false
}

// used notes that an image was used, and that nothing of it is a part any more.
func (c *cache) used(r record) {
	c.change(func(i *index) {
		i.Images = append(slices.DeleteFunc(i.Images, func(other record) bool { return other.Image == r.Image }), r)
		for _, name := range r.Files {
			delete(i.Parts, name+partSuffix)
		}
	})
}

// began notes a download that may break off.
func (c *cache) began(part string) {
	c.change(func(i *index) {
		if i.Parts == nil {
			i.Parts = map[string]time.Time{}
		}
		i.Parts[part] = time.Now().UTC()
	})
}

// collect removes what is not to be kept, and nothing that is in use. With room it keeps only what is in use.
func (c *cache) collect(room bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := c.options.Host.ReadDir(c.options.CacheDirectory)
	if err != nil {
		c.options.Log.Warn("The image store cannot be read", "error", err)
		return
	}
	i := c.load()
	kept := c.keep(&i, room)
	for _, name := range names {
		switch {
		case name == indexName || kept[name] || c.pinned[name] > 0:
			continue
		case strings.HasPrefix(name, ".") && len(c.pinned) > 0:
			continue // somebody may be writing it
		}
		if err := c.options.Host.Remove(c.path(name)); err != nil {
			c.options.Log.Warn("A file of the image store cannot be removed", "file", name, "error", err)
		}
	}
	if raw, err := json.Marshal(i); err == nil && len(names) > 0 {
		if err := c.options.Host.WriteFile(c.path(indexName), raw, host.Private(0o600)); err != nil {
			c.options.Log.Warn("The index of the image store cannot be written", "error", err)
		}
	}
}

// keep decides what is kept, and takes all else out of the index.
func (c *cache) keep(i *index, room bool) map[string]bool {
	rules := c.options.Retention
	if room {
		rules.Images, rules.Bytes = 0, 0
	}
	kept := map[string]bool{}
	var total int64
	slices.SortStableFunc(i.Images, func(a, b record) int { return cmp.Compare(b.Used.UnixNano(), a.Used.UnixNano()) })
	images := i.Images[:0]
	content := map[v1.Hash]bool{}
	for _, r := range i.Images {
		var more int64
		for _, name := range r.Files {
			if !kept[name] {
				more += c.sizeOf(name)
			}
		}
		// Two names of one image count once.
		another := 1
		if content[r.Manifest] {
			another = 0
		}
		if len(content)+another > rules.Images || total+more > rules.Bytes || time.Since(r.Used) > rules.Age {
			continue
		}
		total += more
		content[r.Manifest] = true
		for _, name := range r.Files {
			kept[name] = true
		}
		images = append(images, r)
	}
	i.Images = images
	for name, tried := range i.Parts {
		more := c.sizeOf(name)
		if c.pinned[strings.TrimSuffix(name, partSuffix)] > 0 || time.Since(tried) < maxPartAge && total+more <= rules.Bytes {
			total += more
			kept[name] = true
		} else {
			delete(i.Parts, name)
		}
	}
	return kept
}

func (c *cache) sizeOf(name string) int64 {
	if info, err := c.options.Host.Lstat(c.path(filepath.Base(name))); err == nil {
		return info.Size
	}
	return 0
}
