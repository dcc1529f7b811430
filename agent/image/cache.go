package image

import (
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

	hostfs "github.com/drover-dev/drover/agent/host/fs"
)

const (
	indexName = "index.json"
	// partSuffix ends the names of incomplete downloads.
	partSuffix = ".part"
	// bufferPrefix begins the names of the buffered layers of an archive, which are of no use once it is unpacked.
	bufferPrefix = "buffer-"
	// maxPartAge is for how long after its last byte an incomplete download is kept to be resumed, and a complete one of an image that could
	// not be pulled as a whole.
	maxPartAge = 24 * time.Hour
)

// retention bounds what of the cache is kept.
type retention struct {
	// images is how many images are kept, the most recently used ones.
	images int
	// bytes is how much they and incomplete downloads may take together.
	bytes int64
	// age is for how long an image is kept after its last use.
	age time.Duration
}

// defaultRetention keeps what another attempt needs, and the image before it.
var defaultRetention = retention{images: 2, bytes: 8 << 30, age: 30 * 24 * time.Hour}

// cacheIndex is the content of index.json: the images whose content is in the cache, in no order.
type cacheIndex struct {
	Images []cachedImage `json:"images"`
}

// cachedImage is an image that was unpacked.
type cachedImage struct {
	// Image is the reference that was requested, fully qualified.
	Image string `json:"image"`
	// Manifest is the digest that the reference resolved to.
	Manifest v1.Hash `json:"manifest"`
	// Files are the names of all files of the cache that the image needs, manifests included.
	Files []string `json:"files"`
	// Used is when the image was last unpacked.
	Used time.Time `json:"used"`
}

// lastUse is Used, or zero where that is yet to come: it was noted while the clock was ahead, and must not displace what is used now.
func (i cachedImage) lastUse(now time.Time) time.Time {
	if i.Used.After(now) {
		return time.Time{}
	}
	return i.Used
}

func decodeCacheIndex(raw []byte) (cacheIndex, error) {
	var index cacheIndex
	if err := json.Unmarshal(raw, &index); err != nil {
		return cacheIndex{}, fmt.Errorf("decoding the index of the image cache: %w", err)
	}
	return index, nil
}

// cache is a directory of blobs and manifests, named by their digests, and an index. Losing any of it costs another download only, so what
// cannot be read or written is logged.
type cache struct {
	options   *Options
	retention retention

	// mu guards pinned and the index on disk.
	mu sync.Mutex
	// pinned counts the users of a file.
	pinned map[string]int
}

// blobName is the name of the file with a digest.
func blobName(digest v1.Hash) string { return digest.Algorithm + "-" + digest.Hex }

func (c *cache) path(name string) string { return filepath.Join(c.options.CacheDirectory, name) }

// pin keeps a file, which need not exist yet, and its incomplete download until unpin is called.
func (c *cache) pin(name string) (unpin func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pinned[name]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.pinned[name]--; c.pinned[name] == 0 {
			delete(c.pinned, name)
		}
	})
}

// readIndex needs the lock.
func (c *cache) readIndex() cacheIndex {
	var index cacheIndex
	raw, err := c.options.Host.ReadFile(c.path(indexName))
	if err == nil {
		index, err = decodeCacheIndex(raw)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.options.Log.Warn("Reading the index of the image cache failed", "error", err)
	}
	return index
}

// writeIndex needs the lock.
func (c *cache) writeIndex(index cacheIndex) {
	raw, err := json.Marshal(index)
	if err == nil {
		err = c.options.Host.WriteFile(c.path(indexName), raw, hostfs.WithMode(0o600))
	}
	if err != nil {
		c.options.Log.Warn("Writing the index of the image cache failed", "error", err)
	}
}

// lastManifest returns the digest that a reference resolved to when it was last used.
func (c *cache) lastManifest(image string) (digest v1.Hash, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	images := c.readIndex().Images
	if i := slices.IndexFunc(images, func(other cachedImage) bool { return other.Image == image }); i >= 0 {
		return images[i].Manifest, true
	}
	return v1.Hash{}, false
}

// record adds an image to the index.
func (c *cache) record(image cachedImage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index := c.readIndex()
	index.Images = append(slices.DeleteFunc(index.Images, func(other cachedImage) bool { return other.Image == image.Image }), image)
	c.writeIndex(index)
}

// collect removes what the retention does not keep; with freeDisk everything. Pinned files stay.
func (c *cache) collect(freeDisk bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, err := c.options.Host.ReadDir(c.options.CacheDirectory)
	if err != nil {
		c.options.Log.Warn("Reading the image cache failed", "error", err)
	}
	if len(names) == 0 {
		return
	}
	bounds := c.retention
	if freeDisk {
		bounds.images, bounds.bytes = 0, 0
	}
	index := c.readIndex()
	kept := c.selectKept(&index, names, bounds)
	for _, name := range names {
		// A name that begins with a dot is that of a file that is being written.
		if name == indexName || kept[name] || c.pinned[name] > 0 || strings.HasPrefix(name, ".") && len(c.pinned) > 0 {
			continue
		}
		if err := c.options.Host.Remove(c.path(name)); err != nil {
			c.options.Log.Warn("Removing a file of the image cache failed", "file", name, "error", err)
		}
	}
	c.writeIndex(index)
}

// selectKept returns which files are kept, and removes the images that are not from the index.
func (c *cache) selectKept(index *cacheIndex, names []string, bounds retention) map[string]bool {
	kept, manifests := map[string]bool{}, map[v1.Hash]bool{}
	var total int64
	now := time.Now()
	ofImages := map[string]bool{}
	for _, image := range index.Images {
		for _, name := range image.Files {
			ofImages[name] = true
		}
	}
	slices.SortStableFunc(index.Images, func(a, b cachedImage) int { return b.lastUse(now).Compare(a.lastUse(now)) })
	index.Images = slices.DeleteFunc(index.Images, func(image cachedImage) bool {
		var added int64
		for _, name := range image.Files {
			if !kept[name] {
				added += c.stat(name).Size
			}
		}
		// Two references to one image count once.
		if len(manifests) >= bounds.images && !manifests[image.Manifest] || total+added > bounds.bytes || time.Since(image.Used) > bounds.age {
			return true
		}
		total += added
		manifests[image.Manifest] = true
		for _, name := range image.Files {
			kept[name] = true
		}
		return false
	})
	for _, name := range names {
		blob, isPart := strings.CutSuffix(name, partSuffix)
		if !isPart && (ofImages[name] || name == indexName || strings.HasPrefix(name, ".") || strings.HasPrefix(name, bufferPrefix)) {
			continue
		}
		info := c.stat(name)
		if c.pinned[blob] > 0 || time.Since(info.Modified) < maxPartAge && total+info.Size <= bounds.bytes {
			total += info.Size
			kept[name] = true
		}
	}
	return kept
}

// stat describes a file of the cache; one that is missing has size 0.
func (c *cache) stat(name string) hostfs.Info {
	info, _ := c.options.Host.Lstat(c.path(filepath.Base(name)))
	return info
}
