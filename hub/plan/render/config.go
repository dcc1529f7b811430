package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/plans"
)

// addConfig adds the distribution's configuration file and the files that it refers to.
func (b *builder) addConfig() {
	b.checkListenPort()
	b.checkUnchangeable()
	b.checkStart()
	b.checkDatastore()
	b.addEtcdArgs()
	b.checkSnapshotSchedule()
	b.addRoleArgs()
	b.checkRoles()
	b.checkDirectories()
	b.addPrime()
	b.addComponentArgs()
	b.addAuthEndpoint()
	b.addTokens()
	b.addAddresses()
	b.checkRanges()
	b.addNodeArgs()
	b.addParamFiles()
	b.addSelectorFiles()
	b.args.prune()

	// No restart for labels, which controllers/nodesync brings to the Node, nor for taints and provider ID, which a kubelet takes only when
	// its Node registers. Where a machine joins may change without its workloads having to leave.
	register := []string{"node-label", "node-label+", "node-taint", "node-taint+"}
	restart := b.encodeArgs(register...)
	drain := b.encodeArgs(append(register, "server", "cluster-init")...)
	b.addProviderID()
	content := b.encodeArgs()
	b.addStamped(file{File: plans.File{Path: b.configPath()}, restart: restart, drain: drain}, content)
}

func (b *builder) configPath() string { return configPath(b.Cluster) }

func configPath(c Cluster) string {
	return c.names().ConfigDir + "/config.yaml.d/50-rancher.yaml"
}

// encodeArgs writes the configuration file, without some keys.
func (b *builder) encodeArgs(without ...string) []byte {
	kept := maps.Clone(b.args)
	for _, key := range without {
		delete(kept, key)
	}
	content, err := encode(kept)
	if err != nil {
		b.problems.fail("spec.rkeConfig", "cannot be written as configuration: %s", err)
	}
	return content
}

// encode writes JSON with sorted keys, which is YAML too.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func (b *builder) addEtcdArgs() {
	etcd := b.Cluster.Spec.ETCD
	if !b.Machine.Etcd || etcd == nil {
		return
	}
	if etcd.DisableSnapshots {
		b.args["etcd-disable-snapshots"] = true
	}
	if etcd.SnapshotRetention > 0 {
		b.args["etcd-snapshot-retention"] = int64(etcd.SnapshotRetention)
	}
	b.checkRetention("spec.rkeConfig.etcd.snapshotRetention", etcd.SnapshotRetention)
	if etcd.SnapshotScheduleCron != "" {
		b.args["etcd-snapshot-schedule-cron"] = etcd.SnapshotScheduleCron
	}
	b.addS3(etcd.S3)
}

// addRoleArgs says how the machine takes part in the cluster.
func (b *builder) addRoleArgs() {
	m := b.Machine
	switch {
	case !m.Init:
		b.args["server"] = b.JoinURL
	case b.Cluster.Release.Runtime == release.K3s:
		b.args["cluster-init"] = true
	}
	if m.onlyEtcd() {
		for _, key := range []string{"disable-apiserver", "disable-controller-manager", "disable-scheduler"} {
			b.args[key] = true
		}
	}
	if m.ControlPlane && !m.Etcd {
		b.args["disable-etcd"] = true
	}
	if registry := b.systemRegistry(); registry != "" && m.server() {
		b.args["system-default-registry"] = registry
	}
	if m.NodeName != "" {
		b.args["node-name"] = m.NodeName
	}
}

// addPrime asks for the edition of RKE2 with long support, unless the cluster's configuration says itself what it wants.
func (b *builder) addPrime() {
	if !b.Cluster.Prime || !b.Machine.server() || b.Cluster.Release.Runtime != release.RKE2 {
		return
	}
	_, known := b.Cluster.Release.Arg("prime", true)
	if _, own := b.args["prime"]; known && !own {
		b.args["prime"] = true
	}
}

// systemRegistry is the registry of the system's images: the cluster's own choice, then the hub's.
func (b *builder) systemRegistry() string {
	if r, _ := b.all["system-default-registry"].(string); r != "" {
		return r
	}
	return b.Cluster.Settings.SystemDefaultRegistry
}

// checkRegistry refuses a registry of the cluster's own with which no image has a valid name, and one, also of the hub, with which a server
// of this release would not start.
func (b *builder) checkRegistry() {
	const arg = "system-default-registry"
	registry, _ := b.all[arg].(string)
	if err := settings.CheckRegistry(registry); err != nil {
		b.problems.fail(b.fieldOf(arg), "%s", err)
		return
	}
	if b.Cluster.Spec.UnmanagedConfig || !strings.Contains(b.systemRegistry(), "/") || b.Cluster.Release.Has(release.RegistryPath) {
		return
	}
	b.problems.fail(b.fieldOf(arg), "%s %s takes a host without a path only, and not %q; set it to one here, or use a newer version",
		b.Cluster.Release.Runtime, b.Cluster.Release.Version, b.systemRegistry())
}

// component is a part of the control plane that serves its health on a port of its own with a certificate of its own.
type component struct {
	name, arg, mount string
	port             int
	// service is what RKE2 and k3s call it where certificates are concerned.
	service operationv1.CertificateService
}

var components = []component{
	{"kube-controller-manager", "kube-controller-manager-arg", "kube-controller-manager-extra-mount", 10257, "controller-manager"},
	{"kube-scheduler", "kube-scheduler-arg", "kube-scheduler-extra-mount", 10259, "scheduler"},
}

func (b *builder) certDir(c component) string {
	return b.dataDir + "/server/tls/" + c.name
}

// keepsCertificate reports whether a component keeps its serving certificate in the folder of the hub and of the distribution: the
// cluster's configuration has it nowhere else.
func (b *builder) keepsCertificate(c component) bool {
	_, ownFile := b.args.option(c.arg, "tls-cert-file")
	return !ownFile && (!b.ownCertDir(c) || b.Cluster.Release.Has(release.ComponentCertificates))
}

// ownCertDir reports whether the arguments of a component have a cert-dir.
func (b *builder) ownCertDir(c component) bool {
	_, own := b.args.option(c.arg, "cert-dir")
	return own
}

// addComponentArgs makes controller manager and scheduler keep their serving certificates where probes find them.
func (b *builder) addComponentArgs() {
	if !b.Machine.ControlPlane {
		return
	}
	for _, c := range components {
		if b.keepsCertificate(c) && !b.ownCertDir(c) {
			b.args.extend(c.arg, "cert-dir="+b.certDir(c))
		}
		if b.Cluster.Release.Runtime == release.RKE2 {
			b.mountCertificates(c)
		}
		if _, own := b.args.option(c.arg, "secure-port"); !own {
			b.args.extend(c.arg, fmt.Sprintf("secure-port=%d", c.port))
		}
	}
}

// mountCertificates makes the folders of a component's serving certificate visible in its static pod, which sees nothing else of the host.
// A folder that the cluster's configuration mounts already is left alone.
func (b *builder) mountCertificates(c component) {
	var dirs []string
	if file, ok := b.args.option(c.arg, "tls-cert-file"); ok {
		dirs = append(dirs, path.Dir(file))
		if key, ok := b.args.option(c.arg, "tls-private-key-file"); ok {
			dirs = append(dirs, path.Dir(key))
		}
	} else if dir, ok := b.args.option(c.arg, "cert-dir"); ok {
		dirs = append(dirs, path.Clean(dir))
	}
	for _, dir := range dirs {
		if !path.IsAbs(dir) || b.mounted(c, dir) {
			continue
		}
		b.args.extend(c.mount, dir+":"+dir)
	}
}

// mounted reports whether a component's extra mounts (source:destination[:mode]) have a folder of the pod, or one above it.
func (b *builder) mounted(c component, dir string) bool {
	return slices.ContainsFunc(b.args.words(c.mount), func(mount string) bool {
		_, destination, _ := strings.Cut(mount, ":")
		destination, _, _ = strings.Cut(destination, ":")
		destination = path.Clean(destination)
		return destination == dir || strings.HasPrefix(dir, strings.TrimSuffix(destination, "/")+"/")
	})
}

func (b *builder) addTokens() {
	t := b.Cluster.Tokens
	if t.Server == "" {
		return
	}
	if !b.Machine.server() {
		b.args["token"] = t.Agent
		return
	}
	b.args["token"] = t.Server
	b.args["agent-token"] = t.Agent
}
