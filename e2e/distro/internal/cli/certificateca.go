package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

func certificateRotateCA() *cobra.Command {
	r := &remote{}
	c := &cobra.Command{Use: "rotate-ca", Short: "Give the cluster new authorities", Args: cobra.NoArgs}
	r.add(c, "server", "token")
	path := c.Flags().String("path", "", "Folder with the new files, below tls as in <data-dir>/server")
	force := c.Flags().Bool("force", false, "Take authorities that those of today have not signed")
	_ = c.MarkFlagRequired("path") // the flag is there
	c.RunE = func(c *cobra.Command, _ []string) error {
		files, err := readAuthorities(*path)
		if err != nil {
			return err
		}
		server, err := r.dial(c.Context(), changeTimeout)
		if err != nil {
			return err
		}
		url := fmt.Sprintf("%s?force=%t", supervisor.AuthoritiesPath, *force)
		if err := server.Call(c.Context(), http.MethodPut, url, files, nil); err != nil {
			return fmt.Errorf("see server log for details: %w", err)
		}
		fmt.Println("certificates saved to datastore")
		return nil
	}
	return c
}

// readAuthorities reads those files that are in a folder.
func readAuthorities(path string) (supervisor.Bundle, error) {
	out := supervisor.Bundle{}
	for _, name := range []string{"server-ca", "client-ca", "request-header-ca", "etcd/server-ca", "etcd/peer-ca", "service"} {
		for _, ending := range []string{".crt", ".key"} {
			raw, err := os.ReadFile(filepath.Join(path, "tls", filepath.FromSlash(name)+ending))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out["tls/"+name+ending] = raw
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no authority and no key in %s", filepath.Join(path, "tls"))
	}
	return out, nil
}
