package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// write writes a kubeconfig to where the flags say, and tells which contexts a file has got. A token that is in no file must be revoked.
func (o *kubeconfigOptions) write(config *clientcmdapi.Config, stdout, stderr io.Writer) error {
	err := o.writeTo(config, stdout, stderr)
	if err != nil && o.issued != "" {
		err = fmt.Errorf("%w; token %[2]s was created and is in no kubeconfig: revoke it with \"hub tokens revoke %[2]s%[3]s\"",
			err, o.issued, o.arguments())
	}
	return err
}

func (o *kubeconfigOptions) writeTo(config *clientcmdapi.Config, stdout, stderr io.Writer) error {
	if o.output == "" {
		raw, err := clientcmd.Write(*config)
		if err != nil {
			return fmt.Errorf("encoding the kubeconfig: %w", err)
		}
		_, err = stdout.Write(raw)
		return err
	}
	path := o.output
	// A link stays one: people keep such files elsewhere.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	var err error
	if o.merge {
		err = mergeInto(path, config)
	} else {
		err = writeConfig(path, config)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stderr, "%s has the contexts %s\n", o.output, printable(names(config)))
	return err
}

func writeConfig(path string, config *clientcmdapi.Config) error {
	raw, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encoding the kubeconfig: %w", err)
	}
	return writePrivate(path, raw)
}

// mergeInto adds the entries of a kubeconfig to a file. Entries of the same names are replaced, all others and the current context stay.
// Those of a cluster of another hub are not replaced: whoever uses the context would change the wrong cluster. The lock is kubectl's own.
func mergeInto(path string, config *clientcmdapi.Config) (err error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL, 0)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("somebody else writes %s; where nobody does, remove %s.lock", path, path)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, lock.Close(), os.Remove(lock.Name())) }()
	into, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		into, err = clientcmdapi.NewConfig(), nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	name := config.CurrentContext
	if old, added := into.Clusters[name], config.Clusters[name]; old != nil && added != nil && hostOf(old.Server) != hostOf(added.Server) {
		return fmt.Errorf("%s has an entry %s for %s already, and the new one is for %s: write it to another file, or first run "+
			"kubectl config delete-cluster %[2]s", path, name, hostOf(old.Server), hostOf(added.Server))
	}
	maps.Copy(into.Clusters, config.Clusters)
	maps.Copy(into.AuthInfos, config.AuthInfos)
	maps.Copy(into.Contexts, config.Contexts)
	if into.CurrentContext == "" {
		into.CurrentContext = config.CurrentContext
	}
	return writeConfig(path, into)
}

// hostOf is the host of a server, or all of what is no URL.
func hostOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Host
	}
	return server
}
