package render

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// InstallInstruction is the name of the instruction that installs the distribution and starts or restarts it.
const InstallInstruction = "install"

// addInstall adds the installer image's run. The image's run.sh keeps the last RESTART_STAMP on the machine and restarts the service
// when it is given another; DRAIN_HASH changes only with what workloads would notice.
func (b *builder) addInstall() {
	settings := b.Cluster.Settings
	settings.SystemDefaultRegistry = b.systemRegistry()
	names := b.Cluster.names()
	image := settings.InstallerImage(names.Runtime, b.Cluster.Release.Version)

	windows, prefix := b.Machine.windows(), ""
	if windows {
		prefix = winsPrefix
	}
	env, legacy := b.stamps(image, prefix)
	b.legacyStamps = legacy
	b.addHostCheck(env[0])
	for i, v := range b.Cluster.Spec.AgentEnvVars {
		if v.Name == "" {
			b.problems.fail(fmt.Sprintf("spec.agentEnvVars[%d].name", i), "is empty")
			continue
		}
		if name, _, found := strings.Cut(v.Name, "="); found {
			// What follows may be a password.
			b.problems.warn(fmt.Sprintf("spec.agentEnvVars[%d].name", i),
				"has an equals sign after %q: write the name into name and the value into value; the variable was left out", name)
			continue
		}
		if v.Name == names.EnvPrefix+"_DATA_DIR" && v.Value != "" && v.Value != b.dataDir && !windows {
			b.problems.fail(fmt.Sprintf("spec.agentEnvVars[%d].name", i), "%s cannot be set here: the data directory is that of "+
				"spec.rkeConfig.dataDirectories.k8sDistro, which a new cluster may have; remove the variable", v.Name)
			continue
		}
		if dir := programDir(v.Name, v.Value); dir != "" && strings.HasPrefix(v.Name, "INSTALL_"+names.EnvPrefix+"_") && !windows &&
			!slices.Contains(programDirs, dir) {
			b.problems.doubt(fmt.Sprintf("spec.agentEnvVars[%d].name", i), "%s puts %s into %s, where snapshots, restores and rotations do not "+
				"find it, unless that is in the PATH of the agents: remove the variable", v.Name, names.Runtime, dir)
		}
		if v.Value != "" {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	if b.dataDir != names.DataDir {
		env = append(env, names.EnvPrefix+"_DATA_DIR="+b.Machine.path(b.dataDir))
	} else if kept := b.keptDataDir(names.EnvPrefix + "_DATA_DIR"); kept != "" && !slices.Contains(env, kept) {
		env = append(env, kept)
	}
	if windows {
		env = append(env, "INSTALL_"+names.EnvPrefix+"_VERSION="+b.Cluster.Release.Version)
	}
	if !b.Machine.server() {
		env = append(env, b.execAgent())
	}
	install := plans.CommonInstruction{Name: InstallInstruction, Image: image, Command: "sh", Args: []string{"-c", "run.sh"}, Env: env}
	if windows {
		install.Command, install.Args = "powershell.exe", []string{"-File", "run.ps1"}
	}
	b.plan.Instructions = append(b.plan.Instructions, plans.Instruction{CommonInstruction: install})
	if windows && !b.Cluster.Spec.UnmanagedConfig {
		b.plan.Instructions = append(b.plan.Instructions, plans.Instruction{CommonInstruction: plans.CommonInstruction{
			Name: "set-permissions", Command: "powershell.exe", Args: []string{"-File", b.permissionsScript()},
		}})
	}
}

// execAgent is the variable by which the installer makes the machine a worker.
func (b *builder) execAgent() string { return "INSTALL_" + b.Cluster.names().EnvPrefix + "_EXEC=agent" }

// programDirs are where the scripts of operations find a distribution, beside the PATH of the agent.
var programDirs = []string{"/usr/local/bin", "/opt/rke2/bin", "/opt/bin"}

// programDir is where an installer puts the distribution because of a variable; empty for any other variable.
func programDir(name, value string) string {
	switch {
	case value == "":
	case name == "INSTALL_K3S_BIN_DIR":
		return path.Clean(value)
	case name == "INSTALL_RKE2_TAR_PREFIX":
		return path.Join(value, "bin")
	}
	return ""
}

// stamp hashes what asks for a restart when it changes: the image, every file that is not dynamic, the counter by which a user asks for one
// outright, and that of Rancher's restores. What counts of a file is what of returns, all of it where that is nil. Each part is preceded by
// its length, so that no two inputs run together. The certificate authorities count where authorities is set.
func (b *builder) stamp(image string, authorities bool, of func(file) []byte) string {
	h := sha256.New()
	part(h, strconv.Itoa(b.Cluster.Spec.ProvisionGeneration))
	part(h, image)
	for _, f := range b.files {
		if f.Dynamic || f.authority && !authorities {
			continue
		}
		content := f.Content
		if counts := of(f); counts != nil {
			content = base64.StdEncoding.EncodeToString(counts)
		}
		part(h, f.Path)
		part(h, content)
	}
	part(h, strconv.FormatInt(b.Cluster.ConfigGeneration, 10))
	return hex.EncodeToString(h.Sum(nil))
}

func part(h hash.Hash, s string) {
	fmt.Fprintf(h, "%d:%s", len(s), s)
}
