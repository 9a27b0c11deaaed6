package manage

import (
	"context"
	"io"
	"net/http"
)

// download is an answer that is a file.
type download struct {
	mediaType string
	name      string // for browsers; "": none
	write     func(w io.Writer) error
}

// backup returns a backup of the whole store, with the secrets of all accounts.
func (s *Service) backup(ctx context.Context) (download, error) {
	if err := operator(ctx); err != nil {
		return download{}, err
	}
	return download{"application/octet-stream", "", func(w io.Writer) error {
		err := s.store.Backup(ctx, w)
		if err == nil {
			s.audit(ctx, "backup", "", "", "")
		}
		return err
	}}, nil
}

// sendFile sends a file. After a failure it cuts the connection, so that the client does not
// take a part for the whole.
func (s *Service) sendFile(w http.ResponseWriter, r *http.Request, file download) {
	w.Header().Set("Content-Type", file.mediaType)
	w.Header().Set("Cache-Control", "no-store")
	if file.name != "" {
		w.Header().Set("Content-Disposition", `attachment; filename="`+file.name+`"`)
	}
	if err := file.write(w); err != nil {
		if r.Context().Err() == nil { // otherwise the client has disconnected
			s.log.Error("failed to send a file", "path", r.Pattern, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
}
