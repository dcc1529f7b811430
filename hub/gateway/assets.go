package gateway

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

	"github.com/drover-dev/drover/packaging/install"
)

// Architectures for which the gateway serves an agent.
var architectures = []string{"amd64", "arm64"}

const checksumSuffix = ".sha256"

// assets serves the files that an installation needs: the agent for each architecture from a folder, the uninstall script from this
// program, and the checksum of each. Only names that it knows are served.
type assets struct {
	dir string
	// files maps a served name to the file in dir.
	files map[string]string

	mu        sync.Mutex
	checksums map[string]checksum
}

// checksum of a file as it was at a time; a file that was replaced has another size or time.
type checksum struct {
	size     int64
	modified time.Time
	hex      string
}

const uninstallScriptName = "system-agent-uninstall.sh"

func newAssets(dir string) *assets {
	a := &assets{dir: dir, files: map[string]string{}, checksums: map[string]checksum{}}
	for _, arch := range architectures {
		a.files["system-agent-"+arch] = "system-agent-" + arch
		a.files["rancher-system-agent-"+arch] = "system-agent-" + arch
	}
	return a
}

func (s *Server) serveAsset(w http.ResponseWriter, r *http.Request) {
	name, wantChecksum := strings.CutSuffix(r.PathValue("name"), checksumSuffix)
	if err := s.assets.serve(w, r, name, wantChecksum); err != nil {
		s.writePlain(w, r, err)
	}
}

func (a *assets) serve(w http.ResponseWriter, r *http.Request, name string, wantChecksum bool) error {
	var content io.ReadSeeker
	var modified time.Time
	var sum string
	if name == uninstallScriptName {
		script := install.UninstallScript()
		content, sum = bytes.NewReader(script), hexSHA256(script)
	} else {
		file, err := a.open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return fmt.Errorf("reading asset %s: %w", name, err)
		}
		content, modified = file, info.ModTime()
		if wantChecksum {
			if sum, err = a.checksum(file, info); err != nil {
				return fmt.Errorf("reading asset %s: %w", name, err)
			}
		}
	}
	if wantChecksum {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintf(w, "%s  %s\n", sum, name)
		return nil
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", modified, content)
	return nil
}

func (a *assets) open(name string) (*os.File, error) {
	fileName, known := a.files[name]
	if !known {
		return nil, refuse(http.StatusNotFound, "the hub serves no file of this name")
	}
	if a.dir == "" {
		return nil, refuse(http.StatusNotFound, "the hub has no %s: it runs without an assets folder", fileName)
	}
	file, err := os.Open(filepath.Join(a.dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(http.StatusNotFound, "the hub has no %s: it is missing in the hub's assets folder", fileName)
	}
	if err != nil {
		return nil, fmt.Errorf("opening asset %s: %w", name, err)
	}
	return file, nil
}

// checksum is computed once for as long as the file stays the same.
func (a *assets) checksum(file *os.File, info fs.FileInfo) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, found := a.checksums[file.Name()]
	if found && known.size == info.Size() && known.modified.Equal(info.ModTime()) {
		return known.hex, nil
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	a.checksums[file.Name()] = checksum{size: info.Size(), modified: info.ModTime(), hex: sum}
	return sum, nil
}

func hexSHA256(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// serveInstallScript answers with the install script, which knows this hub already.
func (s *Server) serveInstallScript(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/x-shellscript; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(s.installScript)
}

// installScript is the script for machines of this hub.
func (o *Options) installScript() ([]byte, error) {
	return install.Script(
		install.Var{Name: install.VarServer, Value: o.Settings.ServerURL},
		install.Var{Name: install.VarCAChecksum, Value: o.Settings.CAChecksum()},
		install.Var{Name: install.VarBinaryBaseURL, Value: o.Settings.ServerURL + "/assets"},
	)
}
