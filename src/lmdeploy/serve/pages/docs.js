// Swagger UI over this server's own description; no validator of elsewhere is asked.
"use strict";
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  displayRequestDuration: true,
});
