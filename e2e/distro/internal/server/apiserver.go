package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/args"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/kubeconfig"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// startAPIServer starts kube-apiserver, if this server has one, and waits until it is ready.
func (s *server) startAPIServer(ctx context.Context) error {
	if !s.hasAPI() {
		return nil
	}
	flags := map[string]string{
		"advertise-address": strings.Split(s.address(), ":")[0],
		"allow-privileged":  "true", "anonymous-auth": "false", "authorization-mode": "Node,RBAC",
		"api-audiences": "https://kubernetes.default.svc." + s.ClusterDomain + ",k3s",
		"bind-address":  "0.0.0.0", "secure-port": strconv.Itoa(s.HTTPSPort), "cert-dir": s.data.TLS("temporary-certs"),
		"client-ca-file": s.data.TLS("client-ca.crt"), "enable-admission-plugins": "NodeRestriction",
		"enable-aggregator-routing": "true", "enable-bootstrap-token-auth": "true", "profiling": "false",
		"etcd-servers": "https://127.0.0.1:2379", "etcd-cafile": s.data.TLS("etcd/server-ca.crt"),
		"etcd-certfile": s.data.TLS("etcd/client.crt"), "etcd-keyfile": s.data.TLS("etcd/client.key"),
		"kubelet-certificate-authority": s.data.TLS("server-ca.crt"), "kubelet-client-certificate": s.data.TLS("client-kube-apiserver.crt"),
		"kubelet-client-key": s.data.TLS("client-kube-apiserver.key"), "kubelet-preferred-address-types": "InternalIP,ExternalIP,Hostname",
		"proxy-client-cert-file": s.data.TLS("client-auth-proxy.crt"), "proxy-client-key-file": s.data.TLS("client-auth-proxy.key"),
		"requestheader-allowed-names": "system:auth-proxy", "requestheader-client-ca-file": s.data.TLS("request-header-ca.crt"),
		"requestheader-extra-headers-prefix": "X-Remote-Extra-", "requestheader-group-headers": "X-Remote-Group",
		"requestheader-username-headers": "X-Remote-User",
		"service-account-issuer":         "https://kubernetes.default.svc." + s.ClusterDomain,
		"service-account-key-file":       s.data.TLS("service.key"), "service-account-signing-key-file": s.data.TLS("service.current.key"),
		"service-cluster-ip-range": strings.Join(s.ServiceCIDR, ","), "service-node-port-range": s.NodePortRange,
		"tls-cert-file": s.data.TLS("serving-kube-apiserver.crt"), "tls-private-key-file": s.data.TLS("serving-kube-apiserver.key"),
	}
	if s.SecretsEncryption {
		if err := s.ensureEncryption(ctx); err != nil {
			return err
		}
		flags["encryption-provider-config"] = s.encryptionFile()
		flags["encryption-provider-config-automatic-reload"] = "true"
	}
	err := s.set.Start(child.Child{Name: "kube-apiserver", Patience: 3 * time.Second,
		Args: append([]string{"internal", "kube-apiserver"}, args.Merge(flags, s.APIServerArg)...),
		Env:  []string{supervisor.SocketVariable + "=" + s.socket()}})
	if err != nil {
		return err
	}
	if s.admin, err = kubeconfig.Client(s.adminKubeconfig()); err != nil {
		return err
	}
	if err := s.waitAPI(ctx); err != nil {
		return err
	}
	s.apiAnswered.Store(true)
	return s.publishAddress(ctx)
}

// waitAPI waits until the API server says that it is ready.
func (s *server) waitAPI(ctx context.Context) error {
	began := time.Now()
	for n := 1; ; n++ {
		var code int
		err := s.admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error()
		if err == nil && code == http.StatusOK {
			s.log.Info("The API server is ready", "seconds", time.Since(began).Seconds())
			return nil
		}
		if n%50 == 0 {
			s.log.Info("Waiting for the API server to be ready", "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server: %w", context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startControllers starts the controller manager and the scheduler.
func (s *server) startControllers(context.Context) error {
	if !s.DisableControllerManager {
		if err := s.startControllerManager(); err != nil {
			return err
		}
	}
	if s.DisableScheduler {
		return nil
	}
	conf := s.data.Cred("scheduler.kubeconfig")
	return s.set.Start(child.Child{Name: "kube-scheduler", Patience: 3 * time.Second,
		Args: append([]string{"internal", "kube-scheduler"}, args.Merge(map[string]string{
			"authentication-kubeconfig": conf, "authorization-kubeconfig": conf, "kubeconfig": conf, "bind-address": "127.0.0.1",
			"secure-port": "10259", "profiling": "false", "cert-dir": s.data.TLS("kube-scheduler"),
		}, s.SchedulerArg)...)})
}

func (s *server) startControllerManager() error {
	conf := s.data.Cred("controller.kubeconfig")
	flags := map[string]string{
		"authentication-kubeconfig": conf, "authorization-kubeconfig": conf, "kubeconfig": conf, "bind-address": "127.0.0.1",
		"secure-port": "10257", "profiling": "false", "cert-dir": s.data.TLS("kube-controller-manager"),
		"allocate-node-cidrs": "true", "cluster-cidr": strings.Join(s.ClusterCIDR, ","), "configure-cloud-routes": "false",
		"service-cluster-ip-range": strings.Join(s.ServiceCIDR, ","), "controllers": "*,tokencleaner",
		"root-ca-file": s.data.TLS("server-ca.crt"), "service-account-private-key-file": s.data.TLS("service.current.key"),
		"use-service-account-credentials": "true",
	}
	for use, ca := range map[string]string{"kube-apiserver-client": "client-ca", "kubelet-client": "client-ca",
		"kubelet-serving": "server-ca", "legacy-unknown": "server-ca"} {
		flags["cluster-signing-"+use+"-cert-file"] = s.data.TLS(ca + ".crt")
		flags["cluster-signing-"+use+"-key-file"] = s.data.TLS(ca + ".key")
	}
	return s.set.Start(child.Child{Name: "kube-controller-manager", Patience: 3 * time.Second,
		Args: append([]string{"internal", "kube-controller-manager"}, args.Merge(flags, s.ControllerManagerArg)...)})
}
