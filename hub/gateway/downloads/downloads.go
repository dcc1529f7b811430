// Package downloads serves the files that an installation needs: the agents from the assets folder, the install and the uninstall script,
// and checksums. Everything in it is public.
package downloads

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/response"
	"github.com/drover-dev/drover/packaging/install"
)

// architectures for which the gateway serves an agent.
var architectures = []string{"amd64", "arm64"}

const (
	checksumSuffix      = ".sha256"
	uninstallScriptName = "system-agent-uninstall.sh"
)

// Files serves downloads. Only names that it knows are served, so that nothing else in the folder can be read.
type Files struct {
	dir           string
	installScript []byte
	// files maps a served name to the file in dir.
	files map[string]string
	limit *limiter

	mu        sync.Mutex
	checksums map[string]checksum
}

// checksum of a file with a size and a modification time; a file that was replaced has others.
type checksum struct {
	size     int64
	modified time.Time
	hex      string
}

// New returns the Files of a hub. dir holds the agents, named system-agent-<arch>; empty for a hub that has none.
func New(dir string, hub settings.Settings) (*Files, error) {
	script, err := install.Script(
		install.Var{Name: install.VarServer, Value: hub.ServerURL},
		install.Var{Name: install.VarCAChecksum, Value: hub.CAChecksum()},
		install.Var{Name: install.VarBinaryBaseURL, Value: hub.ServerURL + "/assets"},
	)
	if err != nil {
		return nil, fmt.Errorf("preparing the install script: %w", err)
	}
	f := &Files{dir: dir, installScript: script, files: map[string]string{}, checksums: map[string]checksum{},
		limit: newLimiter(maxPerAddress, maxDownloads)}
	for _, arch := range architectures {
		f.files["system-agent-"+arch] = "system-agent-" + arch
		f.files["rancher-system-agent-"+arch] = "system-agent-" + arch
	}
	return f, nil
}

// ServeInstallScript serves GET /system-agent-install.sh to anybody: the install script with this hub's URL and CA checksum.
func (f *Files) ServeInstallScript(w http.ResponseWriter, _ *http.Request) error {
	response.Write(w, http.StatusOK, "text/x-shellscript; charset=utf-8", f.installScript)
	return nil
}

// ServeAsset serves GET /assets/{name} to anybody: system-agent-<arch>, also as rancher-system-agent-<arch>, and
// system-agent-uninstall.sh; with the suffix .sha256 the line "<sha256>  <name>". Ranges and conditional requests are supported; the ETag
// is the checksum. Other names are 404; 429 with Retry-After if there are too many downloads.
func (f *Files) ServeAsset(w http.ResponseWriter, r *http.Request) error {
	return f.limit.serve(w, r, f.serveAsset)
}

func (f *Files) serveAsset(w http.ResponseWriter, r *http.Request) error {
	name, wantChecksum := strings.CutSuffix(r.PathValue("name"), checksumSuffix)
	var content io.ReadSeeker
	var modified time.Time
	var sum string
	if name == uninstallScriptName {
		script := install.UninstallScript()
		content, sum = bytes.NewReader(script), tokens.Hash(string(script))
	} else {
		file, err := f.open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err == nil {
			sum, err = f.checksum(file, info)
		}
		if err != nil {
			return fmt.Errorf("reading asset %s: %w", name, err)
		}
		content, modified = file, info.ModTime()
	}
	if wantChecksum {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(w, "%s  %s\n", sum, name)
		return nil
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	// By it a client that resumes a download gets nothing of another file. It is the same on all replicas.
	w.Header().Set("ETag", `"`+sum+`"`)
	http.ServeContent(w, r, "", modified, content)
	return nil
}

// Missing returns the agents that a directory does not have, by the names of their files.
func Missing(dir string) []string {
	var missing []string
	for _, arch := range architectures {
		name := "system-agent-" + arch
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, name)
		}
	}
	return missing
}

// AgentChecksums returns the hex SHA-256 of the agents that are served, by architecture; none for a hub without agents.
func (f *Files) AgentChecksums() (map[string]string, error) {
	sums := map[string]string{}
	if f.dir == "" {
		return sums, nil
	}
	for _, arch := range architectures {
		file, err := os.Open(filepath.Join(f.dir, "system-agent-"+arch))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("opening the agent for %s: %w", arch, err)
		}
		info, err := file.Stat()
		if err == nil {
			sums[arch], err = f.checksum(file, info)
		}
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the agent for %s: %w", arch, err)
		}
	}
	return sums, nil
}

func (f *Files) open(name string) (*os.File, error) {
	fileName, known := f.files[name]
	if !known {
		return nil, response.Errorf(http.StatusNotFound, "the hub serves no file of this name")
	}
	if f.dir == "" {
		return nil, response.Errorf(http.StatusNotFound, "the hub has no %s: it runs without an assets folder", fileName)
	}
	file, err := os.Open(filepath.Join(f.dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, response.Errorf(http.StatusNotFound, "the hub has no %s: it is not in the hub's --assets-dir", fileName)
	}
	if err != nil {
		return nil, fmt.Errorf("opening asset %s: %w", name, err)
	}
	return file, nil
}

// checksum returns the hex SHA-256 of a file, which is computed again only if the file has changed.
func (f *Files) checksum(file *os.File, info fs.FileInfo) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, found := f.checksums[file.Name()]
	if found && known.size == info.Size() && known.modified.Equal(info.ModTime()) {
		return known.hex, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	f.checksums[file.Name()] = checksum{size: info.Size(), modified: info.ModTime(), hex: sum}
	return sum, nil
}
