package embedded

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/kubernetes/pkg/controlplane/apiserver/options"
)

//go:embed audit-policy.yaml
var auditPolicy []byte

// auditPolicyFile is the name, in the data directory, of the built-in audit policy as the API server reads it.
const auditPolicyFile = "audit-policy.yaml"

// AuditOptions say where the API server writes its audit log. The zero value turns it off.
type AuditOptions struct {
	// Path of the log file; its directory is made with mode 0700. Empty turns the log off, "-" is the standard output.
	Path string
	// PolicyFile is a Policy of audit.k8s.io/v1; empty takes the built-in one, which logs no bodies.
	PolicyFile string
	// MaxAge is in days, MaxSize in megabytes; MaxBackups is how many files are kept beside the current one. 0 is without a limit.
	MaxAge, MaxBackups, MaxSize int
}

// setAudit adds the audit log to the API server's options.
func setAudit(o *options.Options, dataDir string, audit AuditOptions) error {
	if audit.Path == "" {
		return nil
	}
	policy := audit.PolicyFile
	if policy == "" {
		policy = filepath.Join(dataDir, auditPolicyFile)
		if err := writeFile(policy, auditPolicy, 0o600); err != nil {
			return fmt.Errorf("writing the audit policy: %w", err)
		}
	}
	if audit.Path != "-" {
		if err := os.MkdirAll(filepath.Dir(audit.Path), 0o700); err != nil {
			return fmt.Errorf("making the directory of the audit log: %w", err)
		}
	}
	o.Audit.PolicyFile = policy
	o.Audit.LogOptions.Path = audit.Path
	o.Audit.LogOptions.MaxAge, o.Audit.LogOptions.MaxBackups, o.Audit.LogOptions.MaxSize = audit.MaxAge, audit.MaxBackups, audit.MaxSize
	return nil
}
