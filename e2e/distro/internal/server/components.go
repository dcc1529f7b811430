package server

import (
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/args"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// The components of the control plane.
const (
	etcdMember        = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// runs reports whether this server has a component.
func (s *server) runs(component string) bool {
	switch component {
	case etcdMember:
		return !s.DisableEtcd
	case apiServer:
		return s.hasAPI()
	case controllerManager:
		return !s.DisableControllerManager
	}
	return !s.DisableScheduler
}

// start starts a component other than etcd: as a child of this process, or as a static pod.
func (s *server) start(component string) error {
	if flavour.Current.StaticPods {
		return s.writePod(component)
	}
	c := child.Child{Name: component, Patience: 3 * time.Second, Args: append([]string{"internal", component}, s.args(component)...)}
	if component == apiServer {
		c.Env = []string{supervisor.SocketVariable + "=" + s.socket()}
	}
	return s.set.Start(c)
}

// args are the arguments of a component other than etcd.
func (s *server) args(component string) []string {
	switch component {
	case apiServer:
		return args.Merge(s.apiServerFlags(), s.APIServerArg)
	case controllerManager:
		return args.Merge(s.controllerManagerFlags(), s.ControllerManagerArg)
	}
	return args.Merge(s.schedulerFlags(), s.SchedulerArg)
}

func (s *server) apiServerFlags() map[string]string {
	issuer := "https://kubernetes.default.svc." + s.ClusterDomain
	flags := map[string]string{
		"advertise-address": strings.Split(s.address(), ":")[0],
		"allow-privileged":  "true", "anonymous-auth": "false", "authorization-mode": "Node,RBAC",
		"api-audiences": issuer + "," + flavour.Current.Program,
		"bind-address":  "0.0.0.0", "secure-port": strconv.Itoa(s.HTTPSPort), "cert-dir": s.data.TLS("temporary-certs"),
		"client-ca-file": s.data.TLS("client-ca.crt"), "enable-admission-plugins": "NodeRestriction",
		"enable-aggregator-routing": "true", "enable-bootstrap-token-auth": "true", "profiling": "false",
		"etcd-servers": "https://" + localEtcdAddress, "etcd-cafile": s.data.TLS("etcd/server-ca.crt"),
		"etcd-certfile": s.data.TLS("etcd/client.crt"), "etcd-keyfile": s.data.TLS("etcd/client.key"),
		"kubelet-certificate-authority": s.data.TLS("server-ca.crt"), "kubelet-client-certificate": s.data.TLS("client-kube-apiserver.crt"),
		"kubelet-client-key": s.data.TLS("client-kube-apiserver.key"), "kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
		"proxy-client-cert-file": s.data.TLS("client-auth-proxy.crt"), "proxy-client-key-file": s.data.TLS("client-auth-proxy.key"),
		"requestheader-allowed-names": "system:auth-proxy", "requestheader-client-ca-file": s.data.TLS("request-header-ca.crt"),
		"requestheader-extra-headers-prefix": "X-Remote-Extra-", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-username-headers": "X-Remote-User",
		"service-account-issuer":         issuer,
		"service-account-key-file":       s.data.TLS("service.key"), "service-account-signing-key-file": s.data.TLS("service.current.key"),
		"service-cluster-ip-range": strings.Join(s.ServiceCIDR, ","), "service-node-port-range": s.NodePortRange,
		"tls-cert-file": s.data.TLS("serving-kube-apiserver.crt"), "tls-private-key-file": s.data.TLS("serving-kube-apiserver.key"),
	}
	if s.SecretsEncryption {
		flags["encryption-provider-config"] = s.encryptionFile()
		flags["encryption-provider-config-automatic-reload"] = "true"
	}
	return flags
}

func (s *server) controllerManagerFlags() map[string]string {
	flags := s.controllerFlags("controller", controllerManager, "10257")
	for name, value := range map[string]string{
		"allocate-node-cidrs": "true", "cluster-cidr": strings.Join(s.ClusterCIDR, ","), "configure-cloud-routes": "false",
		"service-cluster-ip-range": strings.Join(s.ServiceCIDR, ","), "controllers": "*,tokencleaner",
		"root-ca-file": s.data.TLS("server-ca.crt"), "service-account-private-key-file": s.data.TLS("service.current.key"),
		"use-service-account-credentials": "true",
	} {
		flags[name] = value
	}
	for use, ca := range map[string]string{"kube-apiserver-client": "client-ca", "kubelet-client": "client-ca",
		"kubelet-serving": "server-ca", "legacy-unknown": "server-ca"} {
		flags["cluster-signing-"+use+"-cert-file"] = s.data.TLS(ca + noChain)
		flags["cluster-signing-"+use+"-key-file"] = s.data.TLS(ca + ".key")
	}
	return flags
}

func (s *server) schedulerFlags() map[string]string {
	return s.controllerFlags("scheduler", scheduler, "10259")
}

// controllerFlags are those that the controller manager and the scheduler have alike.
func (s *server) controllerFlags(name, component, port string) map[string]string {
	conf, cert := s.data.Cred(name+".kubeconfig"), s.data.TLS(component, component)
	return map[string]string{
		"authentication-kubeconfig": conf, "authorization-kubeconfig": conf, "kubeconfig": conf, "bind-address": "127.0.0.1",
		"secure-port": port, "profiling": "false", "tls-cert-file": cert + ".crt", "tls-private-key-file": cert + ".key",
	}
}
