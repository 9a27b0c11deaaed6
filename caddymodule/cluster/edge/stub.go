package edge

import "github.com/postern-dev/postern/connector/link"

func (e *Edge) Publish(link.Message) {}
