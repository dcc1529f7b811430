package nodedriver

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
)

const (
	configFile = "config.json"
	// keepFile is there so that the directory is.
	keepFile = ".keep"
	// maxState is the size of all files of a machine that are read. maxEncoded is that of the encoded state that is written: a Secret holds at
	// most 1 MiB, and in the order of a Job the state is base64 and has the bootstrap data beside it.
	maxState   = 4 << 20
	maxEncoded = 512 << 10
	maxFiles   = 100
)

// The keys of a machine state Secret that others read, too.
const (
	// StateKey holds the encoded state; today's rancher-machine has it too.
	StateKey = "extractedConfig"
	// LogKey holds the end of what the driver has written, without secrets.
	LogKey = "log"
)

// InstanceName is the name at its cloud of an infrastructure machine.
func InstanceName(infraMachine string) string {
	return rkev1.SafeConcat(strings.ReplaceAll(infraMachine, ".", "-"))
}

// State is what a driver keeps of a machine: its files, by name, among them config.json with the driver's configuration, and keys for SSH.
type State struct {
	Name  string
	Files map[string][]byte
}

// host is what config.json holds of a machine, as rancher-machine writes it.
type host struct {
	ConfigVersion int
	Driver        json.RawMessage
	DriverName    string
	HostOptions   json.RawMessage `json:",omitempty"`
	Name          string
}

// configVersion is that of config.json.
const configVersion = 3

// Dir is the directory of a machine's files, as the driver sees it.
func Dir(name string) string { return path.Join(sandbox.Home, "machines", name) }

// Config is the driver's configuration; nil where there is none.
func (s *State) Config() json.RawMessage {
	var h host
	if s == nil || json.Unmarshal(s.Files[configFile], &h) != nil {
		return nil
	}
	return h.Driver
}

// secrets are the values of the driver's configuration that must not appear in messages and logs. The driver got them when it made the
// machine; the credential may be another one by now, or gone.
func (s *State) secrets() (out []string) {
	var config map[string]any
	if json.Unmarshal(s.Config(), &config) != nil {
		return nil // there is none
	}
	for field, value := range config {
		if text, ok := value.(string); ok && secretField.MatchString(field) {
			out = append(out, text)
		}
	}
	return out
}

// setConfig sets the driver's configuration.
func (s *State) setConfig(driver string, config []byte) error {
	raw, err := json.Marshal(host{
		ConfigVersion: configVersion, Driver: config, DriverName: driver, HostOptions: json.RawMessage("{}"), Name: s.Name,
	})
	if err != nil {
		return fmt.Errorf("encoding the configuration of the machine: %w", err)
	}
	s.Files[configFile] = raw
	return nil
}

// Encode returns the files as tar.gz, as the key extractedConfig of a machine state Secret holds them. Equal files have equal encodings.
func (s *State) Encode() ([]byte, error) {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		header := &tar.Header{Name: path.Join("machines", s.Name, name), Mode: 0o600, Size: int64(len(s.Files[name])), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("encoding the state of the machine: %w", err)
		}
		if _, err := archive.Write(s.Files[name]); err != nil {
			return nil, fmt.Errorf("encoding the state of the machine: %w", err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return nil, fmt.Errorf("encoding the state of the machine: %w", err)
	}
	return out.Bytes(), nil
}

// Decode reads the files of a machine from a tar.gz, whatever directory the archive has them in.
func Decode(name string, raw []byte) (*State, error) {
	s := &State{Name: name, Files: map[string][]byte{}}
	zipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("reading the state of the machine: %w", err)
	}
	archive := tar.NewReader(io.LimitReader(zipped, maxState))
	left := int64(maxState) // the holes of a sparse file are not in what is read
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the state of the machine: %w", err)
		}
		_, file, ok := strings.Cut("/"+strings.TrimPrefix(header.Name, "/"), "/machines/"+name+"/")
		if header.Typeflag != tar.TypeReg || !ok || !plain(file) {
			continue
		}
		if len(s.Files) >= maxFiles {
			return nil, fmt.Errorf("the state of the machine has more than %d files", maxFiles)
		}
		if left -= header.Size; left < 0 {
			return nil, fmt.Errorf("the files of the machine have more than %d bytes", maxState)
		}
		if s.Files[file], err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("reading the state of the machine: %w", err)
		}
	}
}

// plain reports whether a name is that of a file right in the directory.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\\\x00") && len(name) < 200
}

// write puts the files into a sandbox.
func (s *State) write(box *sandbox.Sandbox) error {
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if err := box.WriteFile(path.Join(Dir(s.Name), name), s.Files[name]); err != nil {
			return err
		}
	}
	return nil
}

// read takes the files from a sandbox, the smallest first. Links, and files that are large or no state, are left out.
func (s *State) read(box *sandbox.Sandbox) error {
	dir := Dir(s.Name)[1:]
	opened, err := box.Root().Open(dir)
	if err != nil {
		return fmt.Errorf("reading the files of the machine: %w", err)
	}
	defer opened.Close()
	entries, err := opened.ReadDir(maxFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the files of the machine: %w", err)
	}
	var files []os.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() && plain(info.Name()) && info.Name() != configFile && info.Name() != keepFile {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return cmp.Compare(a.Size(), b.Size()) })
	left := int64(maxState / 2)
	for _, file := range files {
		if file.Size() > left {
			break
		}
		content, err := readFile(box, path.Join(dir, file.Name()), left)
		if err != nil {
			return err
		}
		s.Files[file.Name()] = content
		left -= int64(len(content))
	}
	return nil
}

// readFile reads at most limit bytes of a file in a sandbox.
func readFile(box *sandbox.Sandbox, name string, limit int64) ([]byte, error) {
	f, err := box.Root().OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, fmt.Errorf("reading %s in the sandbox: %w", name, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("reading %s in the sandbox: %w", name, err)
	}
	return content, nil
}

// fit leaves out files of the driver, the largest first, until the encoded state is small enough. The configuration, the SSH key and the
// contents of fields stay: without them the machine could not be removed or reached.
func (s *State) fit() error {
	needed := []string{configFile, s.keyFile(), s.keyFile() + ".pub"}
	optional := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Files)), func(name string) bool {
		return slices.Contains(needed, name) || strings.HasPrefix(name, fieldPrefix)
	})
	slices.SortStableFunc(optional, func(a, b string) int { return len(s.Files[b]) - len(s.Files[a]) })
	for {
		encoded, err := s.Encode()
		if err != nil || len(encoded) <= maxEncoded {
			return err
		}
		if len(optional) == 0 {
			return fmt.Errorf("the state of the machine has %d bytes, more than the %d that a Secret holds", len(encoded), maxEncoded)
		}
		delete(s.Files, optional[0])
		optional = optional[1:]
	}
}

// keyFile is the name of the file with the private SSH key.
func (s *State) keyFile() string {
	var known struct{ SSHKeyPath string }
	if json.Unmarshal(s.Config(), &known) == nil && known.SSHKeyPath != "" {
		return path.Base(known.SSHKeyPath)
	}
	return "id_rsa"
}

// SSHKey returns the private key with which the machine is reached, as PEM; nil if the driver has saved none.
func (s *State) SSHKey() []byte {
	block, _ := pem.Decode(s.Files[s.keyFile()])
	if block == nil {
		return nil
	}
	return pem.EncodeToMemory(block)
}
