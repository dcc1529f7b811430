// Package config reads the configuration of a node as k3s and RKE2 keep it: config.yaml, the files of config.yaml.d, the
// environment and the command line. It knows names and types; what a key does is decided elsewhere.
package config

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// Role is what a node runs as.
type Role string

// The roles.
const (
	Server Role = "server"
	Agent  Role = "agent"
)

// Where everything is unless the configuration says otherwise.
var (
	File           = flavour.Name("/etc/rancher/*/config.yaml")
	RegistriesFile = flavour.Name("/etc/rancher/*/registries.yaml")
	KubeconfigFile = flavour.Name("/etc/rancher/*/*.yaml")
	DataDir        = flavour.Name("/var/lib/rancher/*")
)

// fileVariable names another main file.
var fileVariable = flavour.Variable("CONFIG_FILE")

// Config is the configuration of a node. Keys that were not given have k3s's default, or none.
type Config struct {
	Role Role

	DataDir, NodeName, Server, Token, AgentToken              string
	NodeIP, NodeExternalIP, NodeLabel, NodeTaint              []string
	KubeletArg, KubeProxyArg                                  []string
	PauseImage, PrivateRegistry, ResolvConf, Snapshotter      string
	LBServerPort                                              int
	Debug                                                     bool
	AdvertiseAddress, ClusterDomain, NodePortRange            string
	AdvertisePort, HTTPSPort                                  int
	TLSSAN, ClusterCIDR, ServiceCIDR, ClusterDNS              []string
	ClusterInit, SecretsEncryption                            bool
	SecretsEncryptionProvider                                 string
	DisableAgent, DisableAPIServer, DisableControllerManager  bool
	DisableEtcd, DisableScheduler, DisableCloudController     bool
	DisableKubeProxy                                          bool
	APIServerArg, ControllerManagerArg, SchedulerArg, EtcdArg []string
	SystemDefaultRegistry                                     string
	// SupervisorPort is where nodes join, which may be HTTPSPort.
	SupervisorPort int
	// CNI are the network plugins of a flavour that has a choice; the pods of this fixture are on a bridge whatever it is.
	CNI []string
	// ExtraEnv and ExtraMounts are for the static pods, by component.
	ExtraEnv, ExtraMounts                map[string][]string
	EtcdExposeStats                      bool
	WriteKubeconfig, WriteKubeconfigMode string

	// EtcdSnapshotCron is a schedule of five fields. EtcdSnapshotDir is empty for the folder in DataDir.
	EtcdSnapshotName, EtcdSnapshotDir, EtcdSnapshotCron string
	EtcdSnapshotRetention                               int
	EtcdSnapshotCompress, EtcdDisableSnapshots          bool
	// S3 is the bucket that snapshots are copied to, or nil.
	S3 *S3
	// ClusterReset ends with etcd as a cluster of this node alone, restored from ClusterResetRestorePath unless that is empty.
	ClusterReset            bool
	ClusterResetRestorePath string

	given values
}

// Load reads the configuration of a node: environment, then files, then command line, the later of which wins.
// getenv is os.Getenv but in tests, and file is the main file unless the command line names another.
func Load(role Role, file string, args []string, getenv func(string) string) (Config, error) {
	flags, other, err := readFlags(role, args)
	if err != nil {
		return Config{}, err
	}
	given, err := readEnvironment(role, getenv)
	if err != nil {
		return Config{}, err
	}
	files, err := readFiles(cmp.Or(other, getenv(fileVariable), file), role)
	if err != nil {
		return Config{}, err
	}
	maps.Copy(given, files)
	maps.Copy(given, flags)
	return build(role, given)
}

// defaultRetention is how many snapshots stay.
const defaultRetention = 5

func build(role Role, v values) (Config, error) {
	one, yes, num := v.one, v.is, v.number
	many := func(name string, def ...string) []string {
		if len(v[name]) > 0 {
			return v[name]
		}
		return def
	}
	c := Config{
		Role: role, given: v,
		DataDir: one("data-dir", DataDir), NodeName: one("node-name", ""), Server: strings.TrimSuffix(one("server", ""), "/"),
		Token: one("token", ""), AgentToken: one("agent-token", ""),
		NodeIP: many("node-ip"), NodeExternalIP: many("node-external-ip"), NodeLabel: many("node-label"), NodeTaint: many("node-taint"),
		KubeletArg: many("kubelet-arg"), KubeProxyArg: many("kube-proxy-arg"),
		PauseImage: one("pause-image", "rancher/mirrored-pause:3.6"), PrivateRegistry: one("private-registry", RegistriesFile),
		ResolvConf: one("resolv-conf", ""), Snapshotter: one("snapshotter", ""), LBServerPort: num("lb-server-port", 6444),
		Debug:            yes("debug"),
		AdvertiseAddress: one("advertise-address", ""), ClusterDomain: one("cluster-domain", "cluster.local"),
		NodePortRange: one("service-node-port-range", "30000-32767"),
		HTTPSPort:     num("https-listen-port", 6443), AdvertisePort: num("advertise-port", num("https-listen-port", 6443)),
		TLSSAN: many("tls-san"), ClusterCIDR: many("cluster-cidr", "10.42.0.0/16"), ServiceCIDR: many("service-cidr", "10.43.0.0/16"),
		ClusterDNS:  many("cluster-dns"),
		ClusterInit: yes("cluster-init"), SecretsEncryption: yes("secrets-encryption") || flavour.Current.EncryptsSecrets,
		SecretsEncryptionProvider: one("secrets-encryption-provider", "aescbc"),
		DisableAgent:              yes("disable-agent"), DisableAPIServer: yes("disable-apiserver"),
		DisableControllerManager: yes("disable-controller-manager"), DisableEtcd: yes("disable-etcd"),
		DisableScheduler: yes("disable-scheduler"), DisableCloudController: yes("disable-cloud-controller"),
		DisableKubeProxy: yes("disable-kube-proxy"),
		APIServerArg:     many("kube-apiserver-arg"), ControllerManagerArg: many("kube-controller-manager-arg"),
		SchedulerArg: many("kube-scheduler-arg"), EtcdArg: many("etcd-arg"),
		SystemDefaultRegistry: one("system-default-registry", ""),
		EtcdExposeStats:       yes("etcd-expose-metrics"),
		WriteKubeconfig:       one("write-kubeconfig", KubeconfigFile), WriteKubeconfigMode: one("write-kubeconfig-mode", "0600"),

		EtcdSnapshotName: one("etcd-snapshot-name", "etcd-snapshot"), EtcdSnapshotDir: one("etcd-snapshot-dir", ""),
		EtcdSnapshotCron:      one("etcd-snapshot-schedule-cron", "0 */12 * * *"),
		EtcdSnapshotRetention: num("etcd-snapshot-retention", defaultRetention), EtcdSnapshotCompress: yes("etcd-snapshot-compress"),
		EtcdDisableSnapshots: yes("etcd-disable-snapshots"),
		ClusterReset:         yes("cluster-reset"), ClusterResetRestorePath: one("cluster-reset-restore-path", ""),
	}
	c.SupervisorPort = cmp.Or(flavour.Current.SupervisorPort, c.HTTPSPort)
	if flavour.Current.CNI != "" {
		c.CNI = many("cni", flavour.Current.CNI)
	}
	c.ExtraEnv, c.ExtraMounts = map[string][]string{}, map[string][]string{}
	for _, name := range StaticPods {
		c.ExtraEnv[name], c.ExtraMounts[name] = v[name+"-extra-env"], v[name+"-extra-mount"]
	}
	if !c.EtcdDisableSnapshots || c.ClusterReset {
		c.S3 = v.s3()
	}
	return c.finish(one("token-file", ""), one("agent-token-file", ""), one("datastore-endpoint", ""))
}

// finish reads token files, fills in the name of the node and refuses what contradicts itself.
func (c Config) finish(tokenFile, agentTokenFile, datastore string) (Config, error) {
	for _, f := range []struct {
		file string
		into *string
	}{{tokenFile, &c.Token}, {agentTokenFile, &c.AgentToken}} {
		if f.file == "" || *f.into != "" {
			continue
		}
		raw, err := os.ReadFile(f.file)
		if err != nil {
			return c, fmt.Errorf("reading a token: %w", err)
		}
		*f.into = strings.TrimSpace(string(raw))
	}
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("finding the name of this node: %w", err)
		}
		c.NodeName = strings.ToLower(strings.SplitN(name, ".", 2)[0])
	}
	switch {
	case datastore != "":
		return c, fmt.Errorf("datastore-endpoint: this fixture keeps its data in etcd alone")
	case c.ClusterResetRestorePath != "" && !c.ClusterReset:
		return c, fmt.Errorf("cluster-reset-restore-path: means something only with cluster-reset")
	case c.ClusterReset && c.Server != "":
		return c, fmt.Errorf("cluster-reset: remove server from the configuration first")
	case c.Role == Agent && c.Server == "":
		return c, fmt.Errorf("server: an agent needs the URL of a server")
	case c.Server != "" && c.Token == "":
		return c, fmt.Errorf("token: a node that joins needs one")
	case c.Server != "" && !strings.HasPrefix(c.Server, "https://"):
		return c, fmt.Errorf("server: %q is no https URL", c.Server)
	case c.Server == "" && c.DisableEtcd:
		return c, fmt.Errorf("disable-etcd: the first server of a cluster needs etcd")
	}
	return c, nil
}

// FindDataDir is the data folder that the environment and the files name, for whoever needs nothing else.
func FindDataDir(role Role, getenv func(string) string) string {
	v, err := readFiles(cmp.Or(getenv(fileVariable), File), role)
	if err != nil {
		v = nil
	}
	return cmp.Or(strings.Join(v["data-dir"], ""), getenv(flavour.Variable("DATA_DIR")), DataDir)
}
