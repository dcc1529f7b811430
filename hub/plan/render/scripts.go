package render

import (
	_ "embed"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// The scripts that every machine has; instructions that must not be done twice run through the first.
var (
	//go:embed scripts/idempotent.sh
	idempotentSh []byte
	//go:embed scripts/idempotent.ps1
	idempotentPs1 []byte
	//go:embed scripts/save-snapshot.sh
	saveSnapshotSh string
	//go:embed scripts/set-permissions.ps1
	setPermissionsPs1 string
)

// defaultProvisioningDir is where scripts and the state of instructions are kept unless the cluster says otherwise.
const defaultProvisioningDir = "/var/lib/rancher/capr"

// defaultAgentDir is where the agent keeps its state unless the cluster says otherwise.
const defaultAgentDir = "/var/lib/rancher/agent"

// path is a path as the machine's operating system writes it.
func (m Machine) path(p string) string {
	if m.windows() {
		return `c:` + strings.ReplaceAll(p, "/", `\`)
	}
	return p
}

func (b *builder) provisioningDir() string {
	if dir := string(b.Cluster.Spec.DataDirectories.Provisioning); dir != "" {
		return dir
	}
	return defaultProvisioningDir
}

// addScripts adds the scripts that instructions run.
func (b *builder) addScripts() {
	dir := b.provisioningDir() + "/idempotence/"
	if !b.Machine.windows() {
		b.add(plans.File{Path: dir + "idempotent.sh", Dynamic: true, Minor: true}, idempotentSh)
		return
	}
	b.add(plans.File{Path: b.Machine.path(dir + "idempotent.ps1"), Dynamic: true, Minor: true}, idempotentPs1)
	agent := string(b.Cluster.Spec.DataDirectories.SystemAgent)
	if agent == "" {
		agent = defaultAgentDir
	}
	var paths []string
	for _, p := range []string{
		"/etc/rancher/wins/config", "/etc/rancher/node/password", b.configPath(), b.registriesPath(), agentRegistriesPath,
		"/usr/local/bin/rke2.exe", agent, b.provisioningDir(), b.dataDir,
	} {
		paths = append(paths, "    '"+b.Machine.path(p)+"'")
	}
	script := strings.Replace(setPermissionsPs1, "    # PATHS", strings.Join(paths, ",\n"), 1)
	b.add(plans.File{Path: b.permissionsScript(), Dynamic: true, Minor: true}, []byte(script))
}

// permissionsScript is the path of the script that protects files on Windows, where a file's mode means nothing.
func (b *builder) permissionsScript() string {
	return b.Machine.path(b.provisioningDir() + "/windows/set-permissions.ps1")
}
