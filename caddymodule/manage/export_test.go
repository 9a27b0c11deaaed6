package manage

// Routes lists the routes of the handler as "METHOD /path".
func (s *Service) Routes() []string {
	var routes []string
	for path, methods := range s.routes() {
		for method := range methods {
			routes = append(routes, method+" "+path)
		}
	}
	return routes
}
