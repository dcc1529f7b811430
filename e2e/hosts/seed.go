package hosts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Places on a host that cloud-init knows.
const (
	seedDir       = "/var/lib/cloud/seed/nocloud"
	disabledFile  = "/etc/cloud/cloud-init.disabled"
	cloudInitDone = "/run/cloud-init/result.json"
)

// seed puts user data where cloud-init's source NoCloud looks for it, and lets cloud-init run.
func (h *Host) seed(userData []byte) error {
	dir := h.Path(seedDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// The same instance boots again with the same user data: cloud-init then knows that it has been here.
	sum := sha256.Sum256(append([]byte(h.Name+"\x00"), userData...))
	meta := fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\n", hex.EncodeToString(sum[:8]), h.Name)
	for name, text := range map[string][]byte{"user-data": userData, "meta-data": []byte(meta)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return os.Remove(h.Path(disabledFile))
}

// CloudInit reports whether cloud-init has come to its end since the host booted, and what went wrong in it.
func (h *Host) CloudInit() (done bool, errs []string) {
	raw, err := h.readRuntime(cloudInitDone)
	if err != nil {
		return false, nil
	}
	var result struct {
		V1 struct {
			Errors []string `json:"errors"`
		} `json:"v1"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return true, []string{fmt.Sprintf("reading %s: %v", cloudInitDone, err)}
	}
	return true, result.V1.Errors
}

// HasRuntimeFile reports whether a file below /run is there, on a host that is on.
func (h *Host) HasRuntimeFile(path string) bool {
	_, err := h.readRuntime(path)
	return err == nil
}

// readRuntime reads a file that only the running host has, as those below /run.
func (h *Host) readRuntime(path string) ([]byte, error) {
	leader := h.leader()
	if leader == 0 {
		return nil, fmt.Errorf("host %s is off", h.Name)
	}
	// The path is the host's own: a link in it leads nowhere outside of the host.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/%d/root", leader))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(path[1:])
}
